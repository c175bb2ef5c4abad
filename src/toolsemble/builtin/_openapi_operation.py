"""An operation of an OpenAPI document: what it changes, and the name of its tool."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.specification import check_name

TEXT = "text/plain"
"""The content type of a body that is plain text."""

Rename: TypeAlias = Mapping[str, str] | Callable[[str], str] | Literal["short"]
"""New names by the names of operations, a function from one to the other, or ``"short"``."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a service."""

    name: str
    """The name of its tool."""
    description: str
    """What it does."""
    method: str
    """The method, in upper case."""
    path: str
    """The path, as the document has it."""
    url: str
    """The URL, with ``{name}`` for arguments."""
    schema: dict[str, Any]
    """The JSON Schema of the arguments."""
    endpoint_fields: dict[str, Any]
    """The fields of its ``Endpoint`` that say where arguments are sent."""

    @property
    def editable(self) -> str:
        """The argument that a reviewer edits as plain text: a body of type text/plain; else empty."""
        return str(self.endpoint_fields["body"]) if self.endpoint_fields["content_type"] == TEXT else ""

    @property
    def effects(self) -> dict[str, Any]:
        """The settings of its tool that follow from what HTTP says about the method; nothing for POST and PATCH."""
        if self.method in {"GET", "HEAD", "OPTIONS"}:
            return {"effects": "read"}
        if self.method == "DELETE":
            return {"effects": "irreversible"}
        return {"idempotent": True} if self.method == "PUT" else {}


def rename_operations(operations: Sequence[Operation], rename: Any) -> list[Operation]:
    """Return the operations with other names; raise if a name is unknown, not valid, or used twice.

    >>> rename_operations([], {"list_pets": "pets"})
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: OpenAPI: rename: there is no operation 'list_pets'; the operations are none
    """
    if rename is None:
        return list(operations)
    if rename == "short":
        return _shorten(operations)
    if not (callable(rename) or isinstance(rename, Mapping)):
        raise ToolDefinitionError(
            "OpenAPI: rename must be a dict from names to new names, a function of a name, or 'short', not "
            f"{rename!r:.80}"
        )
    if isinstance(rename, Mapping):
        _check_known(rename, operations)
        renamed = [replace(each, name=check_name(rename.get(each.name, each.name))) for each in operations]
    else:
        renamed = [replace(each, name=check_name(rename(each.name))) for each in operations]
    for name, number in Counter(each.name for each in renamed).items():
        if number > 1:
            raise ToolDefinitionError(f"OpenAPI: rename gives {number} operations the name {name!r}")
    return renamed


def _check_known(rename: Mapping[str, str], operations: Sequence[Operation]) -> None:
    known = [each.name for each in operations]
    for name in rename:
        if name not in known:
            shown = ", ".join(known[:100]) or "none"
            raise ToolDefinitionError(
                f"OpenAPI: rename: there is no operation {name!r:.80}; the operations are {shown}"
            )


def _shorten(operations: Sequence[Operation]) -> list[Operation]:
    """Return the operations with the names of the functions, where FastAPI has added path and method to them."""
    short = [_strip_suffix(each) for each in operations]
    taken = Counter([*short, *(each.name for each in operations)])
    names = [
        name if taken[name] == 1 or name == each.name else each.name
        for name, each in zip(short, operations, strict=True)
    ]
    return [replace(each, name=name) for name, each in zip(names, operations, strict=True)]


def _strip_suffix(operation: Operation) -> str:
    suffix = re.sub(r"\W", "_", operation.path) + f"_{operation.method.lower()}"
    return operation.name.removesuffix(suffix) or operation.name
