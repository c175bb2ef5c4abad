"""Pipelines: several tools combined into one tool, without a model call between them."""
