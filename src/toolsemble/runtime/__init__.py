"""What Python lacks for this library; nothing here knows of tools."""
