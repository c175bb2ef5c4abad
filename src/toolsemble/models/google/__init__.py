"""The models of Google."""
