"""pydantic's core schemas for any type: hooks, the rewriting of slow choices, and compilation.

A validator that tries every option validates the content once per option. If options contain each other, as in search
expressions, that doubles with every level, and a few hundred characters can take forever.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args

from toolsemble._runtime.text import describe_error
from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._schema.argument_problems import FORMATS, MEMBER_NAMES, find_ref_target, format_choices
from toolsemble._schema.members import Field, default_keywords

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator


_OPAQUE = {"metadata", "cls", "default", "expected", "members", "config", "function"}
_BY_NAME = {"fields", "choices"}  # their keys are names, not keywords

_LISTS = {"list", "tuple", "set", "frozenset"}


def rewrite(core: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a core schema with every node replaced by the result of a function, innermost first."""
    if isinstance(core, (list, tuple)):
        return type(core)(rewrite(item, change) for item in core)
    if not isinstance(core, dict):
        return core
    return change({key: _rewrite_part(key, value, change) for key, value in core.items()})


def _rewrite_part(key: str, value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if key in _OPAQUE:
        return value
    if key in _BY_NAME and isinstance(value, dict):
        return {name: rewrite(each, change) for name, each in value.items()}
    return rewrite(value, change)


def fail_fast(core: Any) -> Any:
    """Return a core schema that stops at a list's first invalid item, which is enough to reject a value.

    >>> fail_fast({"type": "list", "items_schema": {"type": "int"}})
    {'type': 'list', 'items_schema': {'type': 'int'}, 'fail_fast': True}
    """
    return rewrite(core, lambda node: {**node, "fail_fast": True} if node.get("type") in _LISTS else node)


def check_every_item(core: Any) -> Any:
    """Return a core schema that checks every item of a list, so that all errors are reported.

    >>> check_every_item({"type": "list", "items_schema": {"type": "int"}, "fail_fast": True})
    {'type': 'list', 'items_schema': {'type': 'int'}}
    """
    return rewrite(core, lambda node: {key: value for key, value in node.items() if key != "fail_fast"})


def forbid_extra_keys(core: Any) -> Any:
    """Return a core schema that rejects unknown keys where they would be dropped silently.

    >>> forbid_extra_keys({"type": "typed-dict", "fields": {}})
    {'type': 'typed-dict', 'fields': {}, 'extra_behavior': 'forbid'}
    """
    return rewrite(core, _forbid_in_node)


def _forbid_in_node(node: dict[str, Any]) -> dict[str, Any]:
    if node.get("type") in {"model", "dataclass"}:
        config = node.get("config") or {}
        behavior = config.get("extra_fields_behavior", "ignore")
        extra = {"extra_fields_behavior": "forbid" if behavior == "ignore" else behavior}
        return {**node, "config": {"val_json_bytes": "base64", **config, "allow_inf_nan": False, **extra}}
    if node.get("type") == "typed-dict" and node.get("extra_behavior", "ignore") == "ignore":
        return {**node, "extra_behavior": "forbid"}
    return node


def compile_core(core: Any) -> SchemaValidator:
    """Return a validator of exactly this core schema.

    pydantic-core would replace a complete model's schema by the model's existing validator, which
    ignores unknown keys. Models are marked as incomplete during compilation, as pydantic does when it rebuilds one.
    """
    from pydantic_core import SchemaValidator

    with _INCOMPLETE.mark(_classes_in(core)):
        return SchemaValidator(core)


class _Incomplete:
    """A lock under which classes are marked as incomplete."""

    def __init__(self) -> None:
        self._lock: threading.RLock = fork_safe_lock(self)

    @contextmanager
    def mark(self, classes: list[type]) -> Iterator[None]:
        if not classes:
            yield
            return
        with self._lock:
            changed = [each for each in classes if each.__dict__.get(_COMPLETE) is True]
            try:
                for each in changed:
                    setattr(each, _COMPLETE, False)
                yield
            finally:
                for each in changed:
                    setattr(each, _COMPLETE, True)


_COMPLETE = "__pydantic_complete__"
_INCOMPLETE = _Incomplete()


def _classes_in(core: Any) -> list[type]:
    """Return the classes of all models and dataclasses in a core schema."""
    found: list[type] = []

    def note(node: dict[str, Any]) -> dict[str, Any]:
        found.extend([node["cls"]] if node.get("type") in {"model", "dataclass"} else [])
        return node

    rewrite(core, note)
    return list(dict.fromkeys(found))


Tags: TypeAlias = Mapping[str, list[str]]
"""The constants that an option requires, by field name."""

_DEEPEST = 20
_UNTOUCHED = {"type", "choices", "ref", "metadata", "serialization"}
_NO_SCHEMAS = {"enum", "const", "default", "examples", "example"}


def tag_core(core: Any) -> Any:
    """Return a core schema in which constants select the options of choices."""
    known: dict[str, Any] = {}

    def note(node: dict[str, Any]) -> dict[str, Any]:
        known.update({node["ref"]: node} if "ref" in node else {})
        return node

    rewrite(core, note)
    return rewrite(core, lambda node: tag_choice(node, known))


def tag_choice(node: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return one node of a core schema as a tagged union, if constants distinguish its options."""
    choices = node.get("choices")
    if node.get("type") != "union" or not isinstance(choices, list) or not node.keys() <= _UNTOUCHED:
        return node

    def by(key: str, options: Mapping[str, Any]) -> Any:
        return {"type": "tagged-union", "discriminator": key, "choices": dict(options)}

    options = [each[0] if isinstance(each, tuple) else each for each in choices]  # without their labels
    grouped = _group(options, [_core_tags(each, known) for each in options], by)
    if not grouped:
        return node
    return {**node, **grouped[0]} if len(grouped) == 1 else {**node, "choices": grouped}


def tag_schema(root: Mapping[str, Any]) -> dict[str, Any]:
    """Return an equivalent JSON Schema in which constants select the options of choices.

    >>> cat, dog = ({"type": "object", "properties": {"kind": {"const": name}}, "required": ["kind"]} for name in "cd")
    >>> tag_schema({"anyOf": [cat, dog]})["allOf"][0]["properties"]
    {'kind': {'enum': ['c', 'd']}}
    """
    tagged: dict[str, Any] = _schema_node(root, root)
    return tagged


def _core_tags(node: Any, known: Mapping[str, Any]) -> Tags:
    """Return the constants that a core schema of an object requires."""
    kind = node["type"]
    if kind == "definition-ref":
        return _core_tags(known[node["schema_ref"]], known)
    if kind == "json-or-python":
        return _core_tags(node["json_schema"], known)
    if kind in {"function-after", "model", "dataclass"}:
        return _core_tags(node["schema"], known)
    return _core_constants(node["fields"]) if kind in {"typed-dict", "model-fields", "dataclass-args"} else {}


def _core_constants(fields: Any) -> Tags:
    named = fields.items() if isinstance(fields, dict) else ((each["name"], each) for each in fields)
    found = {}
    for name, each in named:
        is_typed_dict = each["type"] == "typed-dict-field"  # a model may also accept the name beside the alias
        alias = each.get("validation_alias", name) if is_typed_dict or "validation_alias" not in each else None
        if alias and each.get("required", not is_typed_dict) and each["schema"]["type"] == "literal":
            found[alias] = list(each["schema"]["expected"])
    return found


def _schema_node(node: Any, root: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_schema_node(each, root) for each in node]
    if not isinstance(node, Mapping):
        return node
    tagged = {key: value if key in _NO_SCHEMAS else _schema_node(value, root) for key, value in node.items()}
    for keyword in ("anyOf", "oneOf"):
        if isinstance(options := node.get(keyword), list):
            grouped = _group(tagged[keyword], [_schema_tags(each, root) for each in options], _conditions)
            tagged[keyword] = grouped or tagged[keyword]
            if len(grouped) == 1:
                del tagged[keyword]
                tagged["allOf"] = [*tagged.get("allOf", ()), *grouped]
    return tagged


def _schema_tags(node: Any, root: Mapping[str, Any]) -> Tags:
    for _ in range(_DEEPEST):
        if not isinstance(node, Mapping) or "$ref" not in node:
            break
        node = find_ref_target(root, str(node["$ref"]))
    if not isinstance(node, Mapping) or node.get("type") != "object":
        return {}
    properties, required = node.get("properties", {}), set(node.get("required", ()))
    constants = {name: each for name, each in properties.items() if isinstance(each, Mapping) and name in required}
    return {
        name: [each["const"]] if "const" in each else each["enum"]
        for name, each in constants.items()
        if "const" in each or "enum" in each
    }


def _conditions(key: str, options: Mapping[str, Any]) -> Any:
    """Return a schema in which the constant selects the schema to apply."""
    return {
        "type": "object",
        "properties": {key: {"enum": list(options)}},
        "required": [key],
        "allOf": [
            {"if": {"properties": {key: {"const": tag}}, "required": [key]}, "then": each}
            for tag, each in options.items()
        ],
    }


def _group(options: Sequence[Any], tags: Sequence[Tags], make: Callable[[str, Mapping[str, Any]], Any]) -> list[Any]:
    """Return the options, with the options that a constant distinguishes merged into one; empty if there are none."""
    for key in dict.fromkeys(name for each in tags for name in each):
        tagged = [index for index, each in enumerate(tags) if key in each]
        values = [value for index in tagged for value in tags[index][key]]
        plain = all(type(value) is str for value in values)
        if len(tagged) > 1 and plain and len(set(values)) == len(values):
            group = make(key, {value: options[index] for index in tagged for value in tags[index][key]})
            return [group, *(each for index, each in enumerate(options) if index not in tagged)]
    return []


class RenamedDict(dict[str, Any]):
    """A dict with the names in the code that also stores the JSON keys.

    >>> RenamedDict({"left": 1}, {"left": "Left"})
    {'left': 1}
    """

    __slots__ = ("keys_shown",)

    def __init__(self, values: Mapping[str, Any] = {}, keys_shown: Mapping[str, str] = {}) -> None:
        super().__init__(values)
        self.keys_shown = keys_shown


def make_renamer(fields: Mapping[str, str]) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    """Return a function that creates a RenamedDict; None if no name in the code differs from its JSON key.

    >>> make_renamer({"left": "left"}) is None
    True
    """
    keys = {name: key for name, key in fields.items() if key != name}
    return partial(RenamedDict, keys_shown=keys) if keys else None


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
        """Return a core schema that validates text like the given one, but rejects plain numbers."""
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
    """Return the JSON Schema of an enumeration with its member names: a bare number means nothing to a model.

    >>> name_members({"enum": ["on", "off"]}, list(enum.Enum("Switch", {"ON": "on", "OFF": "off"})))
    {'enum': ['on', 'off']}
    """
    if all(isinstance(member.value, str) for member in members):
        return written
    return {**written, MEMBER_NAMES: [member.name for member in members]}


def tighten(core: Any) -> Any:
    """Return a core schema that validates constants and times in pydantic's types as strictly as in this library's."""
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
    """Return the core schema of constants; enum members among them are sent by value."""
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
    """Return a function that raises every exception as a ValueError: pydantic does not catch some types."""

    def convert(value: Any) -> Any:
        try:
            return make(value)
        except (ValueError, AssertionError):
            raise
        except Exception as problem:
            raise ValueError(describe_error(problem)) from problem

    convert.makes = make  # type: ignore[attr-defined]  # as above
    return convert
