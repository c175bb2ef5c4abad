"""The ways to write a tool: a function, a class, or a JSON Schema with a callable."""
