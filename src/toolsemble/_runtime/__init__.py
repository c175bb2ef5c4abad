"""Extensions of the standard library: threads, SQLite, signing, text; independent of tools."""
