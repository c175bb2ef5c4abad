"""Rules that decide calls, and approvals that are remembered."""
