"""The fields of a form, as data that a page draws and sends back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

FieldKind: TypeAlias = Literal[
    "text", "integer", "number", "boolean", "choice", "constant", "object", "array", "union", "json"
]
"""The kind of a field; "json" is a value of any type, written as JSON text."""

FieldState: TypeAlias = Literal["unset", "null", "value"]
"""The state of a field: it is absent, or null, or has a value."""


class _Missing:
    """The value of a field that is not set."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final[Any] = _Missing()
"""The value of a field that is not set."""


@dataclass(frozen=True, slots=True)
class Option:
    """A value that can be chosen.

    >>> Option("low", '"low"').label
    'low'
    """

    label: str
    """The option for people."""
    text: str
    """The value as JSON text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a form, with the fields inside it.

    A page draws it, changes ``state``, ``text``, ``chosen`` and ``fields``, and sends it back to
    :func:`~toolsemble._ui.forms.read_form`; it needs no schema.

    >>> Field(name="order", path="/order", kind="integer", state="value", text="7").label
    ''
    """

    name: str
    """The key in the object around it, or the index in the array; empty for the whole form."""
    path: str
    """The place in the value, as a JSON pointer; empty for the whole form."""
    kind: FieldKind
    """What is drawn, and how ``text`` is read."""
    label: str = ""
    """The title of the schema; empty if there is none."""
    description: str = ""
    """The description of the schema."""
    required: bool = False
    """Whether the value may not be absent."""
    nullable: bool = False
    """Whether the value may be null."""
    state: FieldState = "unset"
    """Whether it is absent, null, or has a value."""
    text: str = ""
    """The value: the text itself of kind "text"; JSON text of all other kinds without fields inside."""
    options: tuple[Option, ...] = ()
    """The values to choose from; for a union, the names of its options."""
    chosen: int | None = None
    """The index of the chosen option of a union; None: none is chosen."""
    fields: tuple[Field, ...] = ()
    """The fields inside: of an object, those of its keys; of an array, its items; of a union, all of its options."""
    item: Field | None = None
    """What a new item of an array, or a new key of an object, looks like; None: there cannot be more."""
    is_extra: bool = False
    """Whether the key of the object is not declared; it can be renamed and removed."""
    is_cut: bool = False
    """Whether the fields inside are left out, because they would repeat: ``expand_field(schema, place)`` has them."""
    place: str = ""
    """The place of its schema in the schema of the form, such as ``#/$defs/Node``."""
    default: str | None = None
    """The default as JSON text; None if there is none."""
    limits: dict[str, Any] = field(default_factory=dict)
    """The bounds, the pattern and the format of the value, as keywords of JSON Schema."""
    secret: bool = False
    """Whether the value is a secret; a known one is masked."""
    changed: bool = False
    """Whether the value differs from the one before."""
    before: str | None = None
    """The value before as JSON text, if it differs; None if it was absent."""
