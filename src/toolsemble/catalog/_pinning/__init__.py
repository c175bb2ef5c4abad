"""Pin the tool definitions that models see, and refuse changed ones."""
