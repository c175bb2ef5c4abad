"""Durable runs: a journal of model replies and call results, from which a killed run resumes."""
