"""The endpoints of the pages; each module knows one kind of data, and none knows another."""
