"""Durable runs: a journal of what models said and what calls returned, from which a killed run continues."""
