"""The pieces of work that a call path asks for, each in a sync and an async form."""
