"""What the adapters of all providers share."""
