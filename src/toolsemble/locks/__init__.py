"""Who holds which resource, and who waits for it."""
