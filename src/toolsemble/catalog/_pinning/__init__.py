"""Pin what models are shown of tools, and refuse what has changed since."""
