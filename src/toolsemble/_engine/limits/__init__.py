"""Layers around the body of a call: timeout, rate limit, retries, concurrency, cache, idempotency."""
