"""From JSON to values: what a model wrote becomes what a tool takes."""
