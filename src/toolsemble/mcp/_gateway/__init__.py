"""The gateway: several servers and tools behind one server, as a file says."""
