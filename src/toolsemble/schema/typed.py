"""The declared parameters of a tool: JSON text into their types, by pydantic-core."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from toolsemble.errors import ToolArgumentsError, ToolDefinitionError
from toolsemble.runtime.fork_locks import fork_safe_lock
from toolsemble.schema.attributes import names_of
from toolsemble.schema.core import compile_core, thorough
from toolsemble.schema.display import UnreadableError, presented, written
from toolsemble.schema.faithful import holds_more, is_json, tells_all, whole
from toolsemble.schema.fast_path import Written, plain_shape
from toolsemble.schema.field import Field, is_memory_id
from toolsemble.schema.pointer import pointed
from toolsemble.schema.problem import Problem, UnfitError
from toolsemble.schema.pydantic_errors import problems_in
from toolsemble.schema.pydantic_hooks import Shape
from toolsemble.schema.reflect import Scope, adapted
from toolsemble.schema.secret import secret_keys
from toolsemble.schema.tagged import tagged_schema
from toolsemble.schema.transparent import init_only, is_transparent
from toolsemble.schema.work import LINEAR, Work, work_of_types

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails, SchemaValidator


class TypedArguments:
    """Reads JSON text into declared types; types are checked when it is made, the rest is built on first use."""

    def __init__(
        self,
        owner: str,
        kind: Any,
        ignored: frozenset[str] = frozenset(),
        keys: Mapping[str, str] | None = None,
        made: type | None = None,
        shapes: Iterable[Shape] = (),
    ) -> None:
        self.owner = owner
        self.ignored = ignored
        self._keys = keys
        self._made = made
        self._kind = kind
        self._shapes = tuple(shapes)
        self._transparent: bool | None = None
        self._shape = next((part for part in get_args(kind)[1:] if isinstance(part, Shape)), None)
        plain = self._plain()
        self._lock = fork_safe_lock(self)
        self._validator: SchemaValidator | None = None
        self._thorough: SchemaValidator | None = None
        self._core: Any = None
        self._work = LINEAR
        self._at_most = 0
        # A tool of common types that is never called keeps no more than what a model is shown of it.
        self._common = plain is not None
        self._schema: dict[str, Any] | None = None if plain is None else plain[1]
        self._secret_keys: frozenset[str] | None = None if plain is None else frozenset()

    @classmethod
    def of_fields(
        cls, name: str, fields: list[Field], names: Mapping[str, Any], ignored: frozenset[str], owner: Any = None
    ) -> TypedArguments:
        """Give the arguments of a function: a dict of its keywords, without what a model may not choose."""
        shape = Shape(dict, f"toolsemble.{name}")
        shapes: dict[Any, Shape] = {}
        _check_keys([each.key or each.name for each in fields], ignored)
        for each in fields:
            scope = Scope(f"parameter '{each.name}'", names, owner=owner, shapes=shapes)
            kind = adapted(each.annotation, scope)
            if each.open:
                _check_open(each, fields)
                shape.extras = kind
                continue
            _check_default(each, kind, scope.place)
            shape.fields.append((each, kind))
        _check_shapes(shapes)
        keys = {each.name: each.key for each, _ in shape.fields if each.key not in ("", each.name)}
        return cls(name, Annotated[Any, shape], ignored, keys, shapes=shapes.values())

    @classmethod
    def of_type(cls, kind: Any, names: Mapping[str, Any]) -> TypedArguments:
        """Give the arguments that are one object of a type."""
        scope = Scope(f"input type {kind.__name__}", names)
        read = adapted(kind, scope)
        _check_shapes(scope.shapes)
        origin = get_origin(kind) or kind
        made = None if issubclass(origin, dict) else origin  # any dict is an instance of a typed dict, or seems so
        return cls(kind.__name__, read, keys=names_of(origin), made=made, shapes=scope.shapes.values())

    @property
    def schema(self) -> dict[str, Any]:
        """The whole JSON Schema of the arguments, with every constraint."""
        if self._schema is None:
            self._build()
        return self._schema  # type: ignore[return-value]  # built above

    @property
    def secret_keys(self) -> frozenset[str]:
        """The parameters that are secrets or have some inside; none of the common types is one."""
        if self._secret_keys is None:
            self._secret_keys = secret_keys(self.schema)
        return self._secret_keys

    def check(self) -> None:
        """Refuse types that only pydantic can judge; common ones need no look before their first use."""
        if self._schema is None:
            self._build()
            root = {**self.schema, **pointed(self.schema, self.schema.get("$ref", ""))}
            if root.get("type") != "object":
                raise ToolDefinitionError(f"'{self.owner}' is not an object with fields; put it into a dataclass")

    def validate(self, text: str) -> Any:
        """Give the values that JSON text holds, or raise :class:`UnfitError`."""
        validator = self._validator or self._build()
        if len(text) > self._at_most and not _admits(self._work, text):
            raise ToolArgumentsError(f"Invalid arguments for '{self.owner}': nested too deeply or too long; send less")
        try:
            return validator.validate_json(text, strict=True)
        except ValueError as unfit:
            raise UnfitError(unfit) from None
        except Exception as raised:
            # A validator of the author's own may raise anything; pydantic lets some kinds through.
            raise ToolArgumentsError(f"Invalid arguments for '{self.owner}': {raised}") from raised

    def holds(self, value: Any) -> bool:
        """Whether a Python object is of the very type that the arguments make, and is passed on as it is."""
        return self._made is not None and isinstance(value, self._made)

    def take(self, value: Any) -> Any:
        """Give the values that a Python object holds, or raise :class:`UnfitError`; one of the type is passed on."""
        if self.holds(value):
            return value
        try:
            return (self._validator or self._build()).validate_python(value, strict=True)
        except Exception:  # noqa: BLE001 - a validator of the author's own may raise anything; read as JSON it is told
            return self.validate(written(value))  # objects inside may be of other types with the same fields

    def wrong_keys(self, unfit: UnfitError) -> frozenset[str] | None:
        """Give the parameters that do not fit, those that are missing, and keys that are unknown; None for any."""
        if unfit.why.error_count() > _HOPELESS:
            return frozenset()  # it is only told what is wrong: nobody would mend so much
        places = [each["loc"] for each in _errors(unfit, include_context=False)]
        return frozenset(str(place[0]) for place in places) if all(places) else None

    def problems(self, text: str, value: Any, unfit: UnfitError) -> tuple[list[Problem], int]:
        """Give what is wrong with a value that is written as the text, and how many problems there are beyond."""
        errors = _errors(unfit)
        # Of a long text the first problem of each list has to do: finding and telling all of them would take too long.
        if len(text) <= _LONG_TEXT and any(len(each["loc"]) > 1 for each in errors):
            errors = _errors(self._looked_through(text))
        errors = [each for each in errors if each["type"] != "json_invalid"]
        return problems_in(errors[:_MOST_ERRORS], value, self.schema), max(0, len(errors) - _MOST_ERRORS)

    def _looked_through(self, text: str) -> UnfitError:
        """Give all that is wrong with a text that does not fit."""
        self._thorough = self._thorough or compile_core(thorough(self._core))
        found = None
        try:
            self._thorough.validate_json(text, strict=True)
        except ValueError as unfit:
            found = unfit
        return UnfitError(found)

    def present(self, value: Any, *, reveal: bool = False, glance: bool = False) -> Any:
        """Return validated values as JSON, every one of them, under the names that the model knows.

        What is shown, read again, gives the same values. Where it does not, because of an undeclared type or what a
        validator makes of it, they are shown with their types. Raise :class:`UnreadableError` when something would not
        be shown; at a glance, say so.
        """
        try:
            shown = presented(value, self._keys, reveal=reveal)
            if glance or is_json(value) or self._keeps_all(value):
                return shown
            return self._sure(value, shown, reveal=reveal)
        except (UnreadableError, RecursionError) as raised:
            problem = raised if isinstance(raised, UnreadableError) else UnreadableError(_TOO_DEEP)
        if glance:
            return str(problem)
        raise problem

    def _keeps_all(self, value: Any) -> bool:
        """Return whether a value of these types is sure to be told by what is shown of it."""
        if self._transparent is None:
            self._transparent = is_transparent(self._core or self._built_core())
        return self._transparent and not holds_more(value)

    def _sure(self, value: Any, shown: Any, *, reveal: bool) -> Any:
        """Return what is shown of a value when that tells all of it; else all of it, with its types."""
        exact = shown if reveal else presented(value, self._keys, reveal=True)
        if tells_all(value, lambda: self._read_again(exact)):
            return shown
        if self.secret_keys:
            raise UnreadableError("It cannot be shown: it has secrets, and would not be read again as the same")
        return whole(value, reveal=reveal)

    @property
    def unkept(self) -> str:
        """What a constructor takes and no object keeps, so that nobody can be shown it; empty for nothing."""
        ours = [
            (each.kind.__name__, field.name) for each in self._shapes for field, _ in each.fields if _is_unkept(field)
        ]
        found = ours or ([] if self._common else list(init_only(self._core or self._built_core())))
        return "".join(f"{name!r} of {kind}" for kind, name in found[:1])

    def _read_again(self, shown: Any) -> Any:
        """Return the values that are read from what is shown; None where it does not fit."""
        try:
            return self.validate(json.dumps(shown, allow_nan=False))
        except (UnfitError, ToolArgumentsError, TypeError, ValueError):
            return None  # which no arguments are

    def _built_core(self) -> Any:
        self._build()
        return self._core

    def _build(self) -> SchemaValidator:
        with self._lock:  # two at once would walk the same shapes
            plain = self._plain()
            self._core, self._schema = plain or self._generated()
            # Where types contain each other and nothing tells them apart, every level of a value multiplies the work.
            self._work = LINEAR if plain else work_of_types(tagged_schema(self._schema))
            self._at_most = self._work.at_most
            self._validator = compile_core(self._core)
            return self._validator

    def _plain(self) -> Written | None:
        """Give both schemas of common types; None where there is another one."""
        return None if self._shape is None else plain_shape(self._shape)

    def _generated(self) -> Written:
        """Give both schemas by pydantic's own generators."""
        from toolsemble.schema.generate import generated  # noqa: PLC0415 - pydantic is large, and common types need only its core

        try:
            return generated(self._kind)
        except Exception as problem:
            # A type of somebody else's: whatever is wrong with it, the author has to hear of it.
            wrong = str(problem).splitlines()[0]
            raise ToolDefinitionError(f"the types of '{self.owner}' cannot be read: {wrong}") from problem


_TOO_DEEP = "It cannot be shown: it is nested too deeply, or inside itself"
_LONG_TEXT = 20_000
_MOST_ERRORS = 100
_HOPELESS = 20_000


def _errors(unfit: UnfitError, *, include_context: bool = True) -> list[ErrorDetails]:
    """Give what the validator found wrong."""
    found: list[ErrorDetails] = unfit.why.errors(
        include_url=False, include_input=False, include_context=include_context
    )
    return found


def _admits(work: Work, text: str) -> bool:
    """Whether a text is neither too deep nor too long to be read; what is not JSON is refused elsewhere, and soon."""
    if work.deepest is not None and text.count("{") + text.count("[") <= work.deepest:
        return True
    try:
        return work.admits(json.loads(text), len(text))
    except (ValueError, RecursionError):
        return True


def _check_keys(keys: list[str], ignored: frozenset[str]) -> None:
    for key in keys:
        if keys.count(key) > 1:
            raise ToolDefinitionError(f"two parameters are called '{key}' for the model; rename one")
        if key in ignored:
            raise ToolDefinitionError(f"parameter '{key}' has the name of an injected one; rename it")


def _check_open(each: Field, fields: list[Field]) -> None:
    """Refuse open names beside a renamed parameter: a model could send its name in the code, past its type."""
    if renamed := next((field for field in fields if field.key not in ("", field.name)), None):
        raise ToolDefinitionError(f"parameter '**{each.name}': any name is open, so '{renamed.name}' cannot be renamed")


def _check_shapes(shapes: Mapping[Any, Shape]) -> None:
    for shape in shapes.values():
        for each, kind in shape.fields:
            place = f"field '{each.name}' of {shape.kind.__name__}"
            if is_memory_id(each.annotation):
                raise ToolDefinitionError(
                    f"{place}: only a function's parameter is injected; use self.context.memory_id"
                )
            _check_default(each, kind, place)


def _check_default(each: Field, kind: Any, place: str) -> None:
    """Refuse a default that is not of the declared type: the body would get it unread."""
    if each.factory is not None or each.required or each.optional or _is_plainly(each.default, kind):
        return
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - plain defaults never come here

    secret = _is_secret(kind)
    try:
        made = TypeAdapter(kind).validate_python(each.default, strict=True)
    except ValidationError as problem:
        wrong = problem.errors(include_url=False)[0]["msg"]
        default = "" if secret else f" {each.default!r:.80}"
        raise ToolDefinitionError(f"{place}: the default{default} is not of the declared type: {wrong}") from None
    if secret and presented(made) != presented(each.default):
        raise ToolDefinitionError(f"{place}: the default of a secret must be one, too; write Secret(...) around it")


def _is_unkept(field: Field) -> bool:
    return field.attribute is None and not field.constant


def _is_secret(kind: Any) -> bool:
    """Whether a type is of secrets, or of something that holds some."""
    return hasattr(get_origin(kind) or kind, "get_secret_value") or any(map(_is_secret, get_args(kind)))


def _is_plainly(value: Any, kind: Any) -> bool:
    """Whether a value is of a type, as far as that can be seen at a glance."""
    if value is None or type(value) is kind:
        return True
    if get_origin(kind) is Literal:
        return any(type(value) is type(each) and value == each for each in get_args(kind))
    return get_origin(kind) is type(value) and not value
