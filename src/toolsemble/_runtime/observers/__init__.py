"""Delivery of events to watchers and sinks."""
