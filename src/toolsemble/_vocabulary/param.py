"""Metadata of parameters for ``Annotated``: ``Param`` and ``MemoryId``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, init=False)
class Param:
    """The description of a parameter for the model, and optionally another name.

    >>> from typing import Annotated
    >>> from toolsemble import tool
    >>> @tool
    ... def weather(city: Annotated[str, Param("The city's English name", name="town")]) -> str:
    ...     return f"sunny in {city}"
    >>> weather.execute('{"town": "Rome"}').output
    'sunny in Rome'
    """

    description: str
    """The parameter's meaning."""
    name: str | None
    """The name for the model; None: the name in the code."""
    required: bool | None
    """Whether the model must set it; None: only if it has no default."""
    examples: tuple[Any, ...]
    """Examples of values."""

    def __init__(
        self,
        description: str = "",
        *,
        name: str | None = None,
        required: bool | None = None,
        examples: Iterable[Any] = (),
    ) -> None:
        object.__setattr__(self, "description", description)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "required", required)
        object.__setattr__(self, "examples", tuple(examples))


class MemoryId:
    """A marker for a parameter that receives the call's memory id; hidden from the model.

    >>> from typing import Annotated
    >>> from toolsemble import Toolbox, ToolCall, tool
    >>> @tool
    ... def whoami(user: Annotated[str, MemoryId]) -> str:
    ...     return user
    >>> Toolbox([whoami]).execute(ToolCall("whoami"), memory_id="ada").text
    'ada'
    """
