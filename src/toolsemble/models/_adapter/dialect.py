"""Adapt a portable JSON Schema to the dialect of a provider, and check a model's settings, such as its reasoning."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble._vocabulary.serialization import compact_json
from toolsemble._vocabulary.specification import Note
from toolsemble.models._chat import Reasoning

_CLAUDE = re.compile(r"claude-[a-z]+-(\d+)(?:-(\d{1,2}))?(?!\d)")
# From this version on, Claude decides how much it thinks, given a level of effort.
_ADAPTIVE = (4, 6)
_CLAUDE_TOKENS = {"low": 2048, "medium": 6144, "high": 12_288}
_LEAST_CLAUDE_TOKENS = 1024


def require_level(reasoning: Reasoning, provider: str) -> str:
    """Return a level; raise ``ToolConfigurationError`` for a number of tokens.

    >>> require_level("high", "OpenAI")
    'high'
    """
    if isinstance(reasoning, int):
        raise ToolConfigurationError(
            f"{provider} takes reasoning as 'low', 'medium' or 'high', not as a number of tokens ({reasoning})"
        )
    return reasoning


def reasoning_refusal(name: str) -> ToolConfigurationError:
    """Return the error for a model whose reasoning cannot be set.

    >>> reasoning_refusal("The local model")
    ToolConfigurationError('The local model has no reasoning setting; leave out reasoning=')
    """
    return ToolConfigurationError(f"{name} has no reasoning setting; leave out reasoning=")


def claude_reasoning(reasoning: Reasoning, model: str, max_tokens: int) -> dict[str, Any]:
    """Return the settings ``thinking`` and ``output_config`` of a Claude model.

    >>> claude_reasoning("low", "claude-haiku-5-5", 16_384)
    {'thinking': {'type': 'adaptive', 'display': 'summarized'}, 'output_config': {'effort': 'low'}}
    >>> claude_reasoning("low", "claude-haiku-4-5-20251001", 16_384)
    {'thinking': {'type': 'enabled', 'budget_tokens': 2048}}
    """
    if isinstance(reasoning, str) and is_adaptive(model):
        return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": reasoning}}
    tokens = _CLAUDE_TOKENS[reasoning] if isinstance(reasoning, str) else reasoning
    if not _LEAST_CLAUDE_TOKENS <= tokens < max_tokens:
        raise ToolConfigurationError(
            f"Claude takes from {_LEAST_CLAUDE_TOKENS} tokens of reasoning to less than max_tokens ({max_tokens}), not "
            f"{tokens}; change reasoning= or the model's max_tokens"
        )
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


def is_adaptive(model: str) -> bool:
    """Return whether a Claude model takes a level of effort; unknown names count as new.

    >>> [is_adaptive(name) for name in ("claude-opus-4-5", "claude-3-7-sonnet", "claude-sonnet-4-6", "claude-x")]
    [False, False, True, True]
    """
    if "claude-3" in model:
        return False
    found = _CLAUDE.search(model)
    return found is None or (int(found[1]), int(found[2] or 0)) >= _ADAPTIVE


def merge_settings(own: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return merged settings; the user's take precedence, also in nested mappings.

    >>> merge_settings({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning": {"effort": "high"}})
    {'reasoning': {'effort': 'high', 'summary': 'auto'}}
    """
    merged = {**own, **settings}
    for name, value in own.items():
        if isinstance(value, Mapping) and isinstance(settings.get(name), Mapping):
            merged[name] = {**value, **settings[name]}
    return merged


Schema: TypeAlias = dict[str, Any]
Rule: TypeAlias = Callable[[Schema, str], tuple[Schema, list[Note]]]
"""Returns a rewritten schema and notes of the changes; its subschemas are already rewritten."""


def ensure_object(parameters: Schema) -> Schema:
    """Return the schema of the arguments as an object with properties, which every provider requires.

    >>> ensure_object({})
    {'type': 'object', 'properties': {}}
    """
    schema = copy.deepcopy(parameters)
    if schema.get("type", "object") != "object" or "anyOf" in schema or "enum" in schema:
        return schema
    return {"type": "object", "properties": {}, **schema}


def rewrite(schema: Schema, *rules: Rule, path: str = "$") -> tuple[Schema, list[Note]]:
    """Return the schema with rules applied to each schema in it, innermost first, and the notes, outermost first.

    >>> array = {"type": "array", "items": {"type": "integer", "default": 5}}
    >>> rewrite(array, move_default)[0]
    {'type': 'array', 'items': {'type': 'integer', 'description': 'default: 5'}}
    """
    below: list[Note] = []

    def inner(part: Any, place: str) -> Any:
        if not isinstance(part, dict):
            return {}  # true, false, or a list from older drafts, which not every provider accepts
        done, notes = rewrite(part, *rules, path=place)
        below.extend(notes)
        return done

    own = {keyword: _rewrite_keyword(keyword, value, path, inner) for keyword, value in schema.items()}
    changes: list[Note] = []
    for rule in rules:
        own, notes = rule(own, path)
        changes += notes
    return own, [*changes, *below]


def _rewrite_keyword(keyword: str, value: Any, path: str, inner: Callable[[Any, str], Any]) -> Any:
    match keyword:
        case "properties":
            return {name: inner(part, f"{path}.{name}") for name, part in value.items()}
        case "items":
            return inner(value, f"{path}[]")
        case "anyOf":
            return [inner(part, path) for part in value]  # all describe the same value
        case "additionalProperties" if isinstance(value, dict):
            return inner(value, f"{path}.*")
    return copy.deepcopy(value)


def close_object(schema: Schema, path: str) -> tuple[Schema, list[Note]]:
    """Return the schema for strict modes, with objects closed; raise ValueError if it is too vague.

    >>> close_object({"type": "object", "properties": {}}, "$")[0]
    {'type': 'object', 'properties': {}, 'additionalProperties': False}
    >>> close_object({}, "$.tags")
    Traceback (most recent call last):
    ...
    ValueError: $.tags: strict mode needs a type, and this admits anything; declare one, or go without strict mode
    """
    if not schema.keys() & {"type", "anyOf", "enum"}:
        raise _strict_error(path, "needs a type, and this admits anything; declare one")
    if any(isinstance(value, list | dict) for value in schema.get("enum", ())):
        raise _strict_error(path, "needs allowed values that are neither arrays nor objects; declare what is in them")
    if schema.get("type") == "array" and "items" not in schema:
        raise _strict_error(path, "needs the type of an array's items; declare it")
    if schema.get("type") != "object":
        return schema, []
    if schema.get("additionalProperties", "properties" not in schema) is not False:
        raise _strict_error(path, "needs every key of an object by name, and this one is open; declare its keys")
    notes = [Note(path, "additionalProperties", "rewritten", "false")]
    closed = {"type": "object", "properties": {}, **schema, "additionalProperties": False}
    return closed, [] if "additionalProperties" in schema else notes


def adapt_strict(parameters: Schema, *rules: Rule) -> tuple[Schema, list[Note]]:
    """Return the argument schema for a strict mode with additional rules; raise ValueError if it is not an object.

    >>> adapt_strict({"type": "object"})[0]
    {'type': 'object', 'properties': {}, 'additionalProperties': False}
    """
    schema = ensure_object(parameters)
    if not parameters or schema.get("type") != "object" or "anyOf" in schema:
        raise _strict_error("$", "needs an object with named properties for the parameters")
    return rewrite(schema, move_default, close_object, *rules)


def adapt(parameters: Schema, *, strict: bool = False) -> tuple[Schema, list[Note]]:
    """Return the schema for a provider, and notes of the changes; raise ValueError if strict mode does not support it.

    >>> adapt({"type": "object", "properties": {"city": {"type": "string"}}})
    ({'type': 'object', 'properties': {'city': {'type': 'string'}}}, [])
    """
    return adapt_strict(parameters) if strict else (ensure_object(parameters), [])


def _strict_error(path: str, why: str) -> ValueError:
    return ValueError(f"{path}: strict mode {why}, or go without strict mode")


def move_default(schema: Schema, path: str) -> tuple[Schema, list[Note]]:
    """Return the schema with its default in the description.

    >>> move_default({"type": "integer", "default": 5, "description": "How many"}, "$.limit")[0]
    {'type': 'integer', 'description': 'How many (default: 5)'}
    """
    if "default" not in schema:
        return schema, []
    words = f"default: {compact_json(schema['default'])}"
    rest = {keyword: value for keyword, value in schema.items() if keyword != "default"}
    return describe(rest, words), [Note(path, "default", "moved", words)]


def describe(schema: Schema, *words: str) -> Schema:
    """Return the schema with words added to its description.

    >>> describe({"description": "How many"}, "default: 5"), describe({}, "default: 5")
    ({'description': 'How many (default: 5)'}, {'description': 'default: 5'})
    """
    phrase, own = "; ".join(words), schema.get("description")
    if not phrase:
        return schema
    return {**schema, "description": f"{own} ({phrase})" if own else phrase}


def require_model_name(provider: str, rest: str, example: str) -> str:
    """Return the model name after a provider's prefix; raise ``ToolConfigurationError`` if it is empty.

    >>> require_model_name("mistral", "", "mistral-large-latest")
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: 'mistral' needs a model name, such as \
'mistral:mistral-large-latest'
    """
    if not rest.strip():
        raise ToolConfigurationError(f"{provider!r} needs a model name, such as '{provider}:{example}'")
    return rest


def require_strict_schema(schema: Mapping[str, Any], provider: str, model: str) -> dict[str, Any]:
    """Return a schema's strict form; raise ``ToolConfigurationError`` if the provider cannot enforce it.

    :param model: the class whose ``native_output`` can be turned off
    """
    try:
        return adapt_strict(dict(schema))[0]
    except ValueError as problem:
        raise ToolConfigurationError(
            f"{provider} cannot enforce this schema: {problem}; or receive the answer through a tool: "
            f"{model}(..., native_output=False)"
        ) from None
