"""The ``Work`` objects that a call path yields, each with a sync and an async implementation."""
