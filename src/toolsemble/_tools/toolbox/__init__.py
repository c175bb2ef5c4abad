"""The toolbox: a registry of tools, and the execution of their calls."""
