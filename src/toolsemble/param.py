"""What a tool author can say about a parameter, inside ``Annotated``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, init=False)
class Param:
    """Describes a parameter for the model, and can rename it.

    >>> from typing import Annotated
    >>> from toolsemble import tool
    >>> @tool
    ... def weather(city: Annotated[str, Param("The city's English name", name="town")]) -> str:
    ...     return f"sunny in {city}"
    >>> weather.execute('{"town": "Rome"}').output
    'sunny in Rome'
    """

    description: str
    """What the parameter means."""
    name: str | None
    """What the model calls it; None for the name in the code."""
    required: bool | None
    """Whether the model must give it; None for what the default says."""
    examples: tuple[Any, ...]
    """Values that a model might send."""

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
    """Marks a parameter that gets the call's memory id; the model neither sees nor chooses it.

    >>> from typing import Annotated
    >>> from toolsemble import Toolbox, ToolCall, tool
    >>> @tool
    ... def whoami(user: Annotated[str, MemoryId]) -> str:
    ...     return user
    >>> Toolbox([whoami]).execute(ToolCall("whoami"), memory_id="ada").text
    'ada'
    """
