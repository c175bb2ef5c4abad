"""The endpoints of the pages; each module handles one kind of data, independently of the others."""
