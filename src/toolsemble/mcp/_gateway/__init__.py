"""The gateway: several servers and tools behind one server, configured by a file."""
