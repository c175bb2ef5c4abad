"""A tool as the call path sees it."""
