"""Wire formats, one module for each provider: write tools, read calls, write replies. No SDK is imported."""
