"""Stores of requests and decisions, and the reviewer that waits for their answers."""
