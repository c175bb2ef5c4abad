"""Dates and times as people write them: zones, moments, spans, and the questions about them."""
