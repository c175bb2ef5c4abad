"""Toolsemble against the floor: the same work with bare Python and pydantic-core."""
