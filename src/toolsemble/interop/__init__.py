"""Tools of a toolbox in other agent frameworks, and the tools of those in a toolbox: one module for each framework.

Each module has two functions. ``export(box)`` returns what the framework takes as tools; every call goes through the
toolbox. ``adopt(tools)`` returns the framework's tools as tools of this library. A framework is imported when one of
them is called.
"""
