"""Hooks that tell pydantic how to validate types that it does not know, or validates differently."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args

from toolsemble._runtime.text import describe_error
from toolsemble._schema.core_schema import rewrite
from toolsemble._schema.field import Field, default_keywords
from toolsemble._schema.phrases import FORMATS, MEMBER_NAMES, format_choices
from toolsemble._schema.renamed_keys import make_renamer

CONFIG: Any = {"val_json_bytes": "base64", "allow_inf_nan": False}
"""The pydantic configuration of shapes: bytes are base64, and numbers are finite."""

TEMPORAL: dict[Any, str] = {
    datetime.date: "date",
    datetime.datetime: "date-time",
    datetime.time: "time",
    datetime.timedelta: "duration",
}
"""The date and time types, with their JSON Schema formats."""

_NUMBER = re.compile(r"\s*[+-]?[\d.]+\s*")


@dataclass(frozen=True, slots=True, eq=False)
class ScalarSubclass:
    """A hook that creates an object of a class from a scalar."""

    kind: type
    """The class, called with the scalar."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        validated = core_schema.no_info_after_validator_function(_convert_exceptions(self.kind), handler(source))
        return core_schema.json_or_python_schema(validated, core_schema.is_instance_schema(self.kind))


@dataclass(frozen=True, slots=True, eq=False)
class Temporal:
    """A hook that rejects numbers as dates: a model that sends '2024' means the year, not seconds since 1970."""

    kind: type
    """A date, time, datetime or timedelta type."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return self.wrap(handler(source))

    def wrap(self, known: Any) -> Any:
        """Return a core schema that validates text as the given one does, but rejects plain numbers."""
        from pydantic_core import SchemaValidator, core_schema

        lenient = SchemaValidator(known)

        def read(text: str) -> Any:
            try:
                if not _NUMBER.fullmatch(text):
                    return lenient.validate_python(text)
            except ValueError:
                pass
            raise ValueError(f"expected {FORMATS[TEMPORAL[self.kind]]}")

        validated = core_schema.no_info_after_validator_function(read, core_schema.str_schema())
        return core_schema.json_or_python_schema(validated, known)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return {**handler(core), "format": TEMPORAL[self.kind]}


@dataclass(frozen=True, slots=True, eq=False)
class ExactLiteral:
    """A hook that distinguishes true from 1, which are equal in Python."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return _exact_literal(list(get_args(source)))


@dataclass(frozen=True, slots=True, eq=False)
class EnumMember:
    """A hook that reads a member of an enumeration by its value or by its name."""

    kind: type[enum.Enum]
    by_value: bool
    """Whether a model sends the values, not the names."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        known = {member.value if self.by_value else name: member for name, member in self.kind.__members__.items()}
        return core_schema.json_or_python_schema(
            core_schema.no_info_after_validator_function(known.__getitem__, _plain_literal(list(known))),
            core_schema.is_instance_schema(self.kind),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda member: member.value if self.by_value else member.name
            ),
        )

    def __get_pydantic_json_schema__(self, source: Any, handler: Any) -> Any:
        return name_members(handler(source), list(self.kind)) if self.by_value else handler(source)


def name_members(written: dict[str, Any], members: list[enum.Enum]) -> dict[str, Any]:
    """Return the JSON Schema of an enumeration with the names of its members: a number says nothing to a model.

    >>> name_members({"enum": ["on", "off"]}, list(enum.Enum("Switch", {"ON": "on", "OFF": "off"})))
    {'enum': ['on', 'off']}
    """
    if all(isinstance(member.value, str) for member in members):
        return written
    return {**written, MEMBER_NAMES: [member.name for member in members]}


def tighten(core: Any) -> Any:
    """Return a core schema that validates constants and times in pydantic's own types as strictly as in ours."""
    return rewrite(core, _tighten_node)


def _tighten_node(node: dict[str, Any]) -> dict[str, Any]:
    if node.get("type") == "literal" and not all(isinstance(value, str) for value in node["expected"]):
        return _exact_literal(node["expected"])
    if node.get("type") == "enum" and not node.get("missing"):
        known = {member.value: member for member in node["members"]}
        if all(type(value) in (int, float, bool) for value in known):
            return _read_members(known, node)
    if node.get("type") == "typed-dict" and "cls" in node:
        return _rename_dict_keys(node)
    if node.get("type") == "datetime":
        exact: dict[str, Any] = Temporal(datetime.datetime).wrap(node)
        return exact
    return node


def _rename_dict_keys(node: dict[str, Any]) -> dict[str, Any]:
    """Return the core schema of a typed dict that keeps the JSON keys."""
    aliases = {name: each.get("validation_alias") for name, each in node["fields"].items()}
    rename = make_renamer({name: alias for name, alias in aliases.items() if isinstance(alias, str)})
    if rename is None:
        return node
    inner = {key: value for key, value in node.items() if key != "ref"}
    read = {"type": "function-after", "function": {"type": "no-info", "function": rename}, "schema": inner}
    return {**read, "ref": node["ref"]} if "ref" in node else read


def _exact_literal(values: list[Any]) -> dict[str, Any]:
    """Return the core schema of constants; members of enumerations among them are sent by value."""
    if not any(isinstance(value, enum.Enum) for value in values):
        return _plain_literal(values)
    known = {value.value if isinstance(value, enum.Enum) else value: value for value in values}
    return _read_members(known, {"type": "literal", "expected": values})


def _plain_literal(values: list[Any]) -> dict[str, Any]:
    check = {"type": "no-info", "function": _make_type_check(values)}
    return {"type": "function-before", "function": check, "schema": {"type": "literal", "expected": values}}


def _read_members(known: dict[Any, Any], python_schema: dict[str, Any]) -> dict[str, Any]:
    """Return the core schema that reads the members of a mapping from JSON by their keys."""
    to_member = {"type": "no-info", "function": known.__getitem__}
    read = {"type": "function-after", "function": to_member, "schema": _plain_literal(list(known))}
    return {"type": "json-or-python", "json_schema": read, "python_schema": python_schema}


def _make_type_check(values: list[Any]) -> Callable[[Any], Any]:
    """Return a function that rejects values of another type, even if they are equal to an allowed one."""
    kinds = {type(value) for value in values}

    def check(value: Any) -> Any:
        if type(value) in kinds:
            return value
        raise ValueError(f"expected {format_choices(values)}")

    return check


@dataclasses.dataclass(slots=True, eq=False)
class Shape:
    """A hook that validates an object of one type, field by field."""

    kind: type
    """The type of the object; ``dict`` for arguments and typed dicts."""
    ref: str
    """The name under which the type refers to itself."""
    fields: list[tuple[Field, Any]] = field(default_factory=list)
    """Each field with its adapted type."""
    extras: Any = None
    """The adapted type of extra keys; None: no extra keys."""
    description: str = ""
    """The description of the type, from its docstring."""
    busy: bool = False
    """Whether the schema is being generated, so that a nested use is a reference."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        if self.busy:
            return core_schema.definition_reference_schema(self.ref)
        self.busy = True
        try:
            fields = {each.name: _core_field(each, kind, handler) for each, kind in self.fields}
            more = None if self.extras is None else handler.generate_schema(self.extras)
        finally:
            self.busy = False
        behavior: Any = "forbid" if more is None else "allow"
        described = {"pydantic_js_updates": {"description": self.description}} if self.description else None
        body = core_schema.typed_dict_schema(
            fields, extra_behavior=behavior, extras_schema=more, config=CONFIG, metadata=described
        )
        if issubclass(self.kind, dict):
            read: Any = body
            if (rename := self.renaming()) is not None:
                read = core_schema.no_info_after_validator_function(rename, body)
            return core_schema.json_or_python_schema(read, read, ref=self.ref)
        validated = core_schema.no_info_after_validator_function(make_constructor(self), body)
        return core_schema.json_or_python_schema(validated, core_schema.is_instance_schema(self.kind), ref=self.ref)

    def renaming(self) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
        """Return a function that creates a typed dict whose JSON keys differ from its names; None if none differ."""
        if self.kind is dict:  # the arguments of a function, which maps the names itself
            return None
        return make_renamer({each.name: each.key or each.name for each, _ in self.fields})


def _core_field(each: Field, kind: Any, handler: Any) -> Any:
    from pydantic import Field as Info
    from pydantic_core import core_schema

    if each.description or each.examples:
        kind = Annotated[kind, Info(description=each.description or None, examples=list(each.examples) or None)]
    schema = handler.generate_schema(kind)
    if each.factory is not None:
        schema = core_schema.with_default_schema(schema, default_factory=each.factory)
    elif not each.required and not each.optional:
        schema = core_schema.with_default_schema(schema, **default_keywords(each.default))
    alias = each.key if each.key and each.key != each.name else None
    return core_schema.typed_dict_field(schema, required=each.required, validation_alias=alias)


def make_constructor(shape: Shape) -> Callable[[dict[str, Any]], Any]:
    """Return a function that creates an object from the values of its fields; exceptions become ValueErrors."""
    constants = [each.name for each, _ in shape.fields if each.constant]

    def construct(values: dict[str, Any]) -> Any:
        for name in constants:
            values.pop(name, None)
        return shape.kind(**values)

    checked = _convert_exceptions(construct)
    checked.makes = shape.kind  # type: ignore[attr-defined]  # read by keeps_all()
    return checked


def _convert_exceptions(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that raises every exception as a ValueError: pydantic passes some types on."""

    def convert(value: Any) -> Any:
        try:
            return make(value)
        except (ValueError, AssertionError):
            raise
        except Exception as problem:
            raise ValueError(describe_error(problem)) from problem

    convert.makes = make  # type: ignore[attr-defined]  # as above
    return convert
