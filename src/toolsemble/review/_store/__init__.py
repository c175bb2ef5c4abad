"""Stores of requests and answers, and the reviewer that waits for the answers."""
