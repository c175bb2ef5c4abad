"""The web interface: the runs of a data folder, what waits for a person, and tools as forms; needs the extra ``ui``.

``toolsemble ui`` starts it. The modules that turn schemas and records into data need no extra.
"""
