"""The lock table: which call holds which resource or slot, which calls wait, and deadlock detection."""
