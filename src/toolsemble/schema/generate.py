"""Pydantic's core schemas: closed against unknown keys, and written as JSON Schema."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

_LISTS = {"list", "tuple", "set", "frozenset"}


def closed(core: Any, *, fail_fast: bool = False) -> Any:
    """Give a core schema whose models refuse unknown keys where they would silently drop them.

    With ``fail_fast`` a list is left at its first wrong item: enough where only its fitting matters.
    """
    if isinstance(core, list):
        return [closed(item, fail_fast=fail_fast) for item in core]
    if isinstance(core, tuple):
        return tuple(closed(item, fail_fast=fail_fast) for item in core)
    if not isinstance(core, dict):
        return core
    kept = {"metadata", "cls", "default"}
    copied = {key: value if key in kept else closed(value, fail_fast=fail_fast) for key, value in core.items()}
    if fail_fast and copied.get("type") in _LISTS:
        copied["fail_fast"] = True
    if copied.get("type") == "model":
        config = copied.get("config") or {}
        behavior = config.get("extra_fields_behavior", "ignore")
        copied["config"] = {**config, "extra_fields_behavior": "forbid" if behavior == "ignore" else behavior}
    return copied


def json_schema(core: Any) -> dict[str, Any]:
    """Give the JSON Schema of a core schema, with every constraint."""
    return _Schemas(by_alias=True).generate(core, mode="validation")


class _Schemas(GenerateJsonSchema):
    """As pydantic writes them, but for what our reading does differently."""

    # A default that JSON cannot hold is the author's own matter: the model simply is not told.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default", "skipped-discriminator"}  # noqa: RUF012 - as in the base

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        """Models that refuse unknown keys say so."""
        written = super().model_schema(schema)
        if schema.get("config", {}).get("extra_fields_behavior") == "forbid":
            written.setdefault("additionalProperties", False)
        return written

    def bytes_schema(self, schema: Any) -> JsonSchemaValue:
        """Bytes are read from base64."""
        written: JsonSchemaValue = {"type": "string", "format": "base64"}
        self.update_with_validations(written, schema, self.ValidationsMapping.bytes)
        return written
