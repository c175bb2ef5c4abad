"""The models of Mistral."""
