"""The vocabulary that every other package shares: calls, results, specifications, errors."""
