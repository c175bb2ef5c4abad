"""Pydantic models for frameworks that take the schema of a tool only as a model."""

from __future__ import annotations

import copy
from typing import Any

from pydantic import BaseModel, ConfigDict

from toolsemble.interop.exported import ExportedTool


def model_of(exported: ExportedTool) -> type[BaseModel]:
    """Return a model with the schema of a tool; it accepts all, because the toolbox validates the arguments.

    >>> from toolsemble import Toolbox, tool
    >>> from toolsemble.interop.exported import export_tools
    >>> @tool
    ... def double(number: int) -> int:
    ...     '''Double a number.'''
    ...     return 2 * number
    >>> [exported] = export_tools(Toolbox([double]))
    >>> model = model_of(exported)
    >>> model.model_json_schema()["properties"]
    {'number': {'type': 'integer'}}
    >>> model.model_validate({"number": "21"}).model_dump()
    {'number': '21'}
    """
    schema = {"title": exported.shown_name, **exported.parameters}

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="allow", title=exported.shown_name)

        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            return copy.deepcopy(schema)

    Arguments.__doc__ = None
    return Arguments
