"""The engine: what a tool is to the call path, the path itself, its limits, and where bodies run."""
