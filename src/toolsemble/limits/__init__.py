"""Layers around the body of a call: time, rate, retries, concurrency, cache, idempotency."""
