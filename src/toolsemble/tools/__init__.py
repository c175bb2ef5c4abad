"""How a tool is written: as a function, a class, or a schema."""
