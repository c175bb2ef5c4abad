"""Several tools as one call, without a model in between."""
