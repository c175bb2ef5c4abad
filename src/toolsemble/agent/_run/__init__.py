"""One run of an agent: its turns, and what is around them: the journal, the deps and the watchers."""
