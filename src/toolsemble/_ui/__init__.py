"""The web interface: a data folder's runs, pending approvals, and tools as forms; needs the extra ``ui``.

``toolsemble ui`` starts it. The modules that turn schemas and records into data need no extra.
"""
