"""Restrict file access to a sandbox directory, and network access to public addresses."""
