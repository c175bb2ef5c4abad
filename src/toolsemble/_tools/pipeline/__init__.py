"""Pipelines: several tools combined into one, without model requests in between."""
