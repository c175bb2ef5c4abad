"""The path of a call, its steps, and the drivers that run it."""
