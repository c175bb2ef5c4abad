"""Any type that pydantic knows, by its own generators: core schema and JSON Schema."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue


def generated(kind: Any) -> tuple[Any, dict[str, Any]]:
    """Give the core schema and the JSON Schema of a type."""
    core = _closed(TypeAdapter(kind).core_schema)
    return core, _Schemas(by_alias=True).generate(core, mode="validation")


def _closed(core: Any) -> Any:
    """Give a core schema whose models refuse unknown keys where they would silently drop them."""
    if isinstance(core, (list, tuple)):
        return type(core)(_closed(item) for item in core)
    if not isinstance(core, dict):
        return core
    copied = {key: value if key in {"metadata", "cls", "default"} else _closed(value) for key, value in core.items()}
    if copied.get("type") in {"model", "dataclass"}:
        config = copied.get("config") or {}
        behavior = config.get("extra_fields_behavior", "ignore")
        extra = {"extra_fields_behavior": "forbid" if behavior == "ignore" else behavior}
        copied["config"] = {"val_json_bytes": "base64", **config, "allow_inf_nan": False, **extra}
    elif copied.get("type") == "typed-dict" and copied.get("extra_behavior", "ignore") == "ignore":
        copied["extra_behavior"] = "forbid"
    return copied


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

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        """Dataclasses that refuse unknown keys say so, too."""
        written = super().dataclass_schema(schema)
        if schema.get("config", {}).get("extra_fields_behavior") == "forbid":
            written.setdefault("additionalProperties", False)
        return written

    def bytes_schema(self, schema: Any) -> JsonSchemaValue:
        """Bytes are read from base64."""
        written: JsonSchemaValue = {"type": "string", "format": "base64"}
        self.update_with_validations(written, schema, self.ValidationsMapping.bytes)
        return written
