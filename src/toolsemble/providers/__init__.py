"""One module for each provider's wire format: tools to offer, calls to read, replies to send. No SDK is imported."""
