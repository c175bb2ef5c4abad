"""The models of Anthropic."""
