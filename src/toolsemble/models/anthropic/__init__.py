"""Models of Anthropic."""
