"""Worker processes: their pool, what runs inside of them, and how they are ended."""
