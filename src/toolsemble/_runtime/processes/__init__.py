"""Worker processes: their pool, the code that runs in them, and how they are killed."""
