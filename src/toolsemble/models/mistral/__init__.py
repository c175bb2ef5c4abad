"""Models of Mistral."""
