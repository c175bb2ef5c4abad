"""Parse arithmetic expressions and compute them with exact numbers."""
