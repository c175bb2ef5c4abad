"""The web interface: runs, approvals, tools and pipelines as data for its pages, and the server."""
