"""Toolbox tools in other agent frameworks, and their tools in a toolbox: one module per framework.

Each module has two functions. ``export(box)`` returns the toolbox's tools in the framework's form; every call goes
through the toolbox. ``adopt(tools)`` returns the framework's tools as tools of this library. A framework is imported
when one of them is called.
"""
