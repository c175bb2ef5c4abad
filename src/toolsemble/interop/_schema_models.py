"""Pydantic models for frameworks that take the schema of a tool only as a model."""

from __future__ import annotations

import copy
from typing import Any

from pydantic import BaseModel, ConfigDict


def model_of(name: str, parameters: dict[str, Any]) -> type[BaseModel]:
    """Return a model with a schema; it accepts all arguments, because the toolbox validates them.

    >>> schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
    >>> model = model_of("double", schema)
    >>> model.model_json_schema()["properties"]
    {'number': {'type': 'integer'}}
    >>> model.model_validate({"number": "21"}).model_dump()
    {'number': '21'}
    """
    schema = {"title": name, **parameters}

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="allow", title=name)

        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            return copy.deepcopy(schema)

    return Arguments
