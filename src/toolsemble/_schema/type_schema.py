"""Generate the core schema and the JSON Schema of any type with pydantic's generators.

A separate module, because common types need only pydantic-core, and pydantic is slow to import.
"""

from __future__ import annotations

import enum
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from toolsemble._schema.pydantic_schema import fail_fast, forbid_extra_keys, name_members, tag_core, tighten
from toolsemble._schema.secret_values import PASSWORD, remove_secret_values


def generate_schemas(kind: Any) -> tuple[Any, dict[str, Any]]:
    """Return the core schema, which stops at the first wrong item of a list, and the JSON Schema of a type."""
    core = forbid_extra_keys(TypeAdapter(kind).core_schema)
    written = _JsonSchemaGenerator(by_alias=True).generate(core, mode="validation")
    return tag_core(fail_fast(tighten(core))), remove_secret_values(written)


class _JsonSchemaGenerator(GenerateJsonSchema):
    """Pydantic's generator, adjusted to the differences in validation."""

    # A default that JSON cannot represent is omitted from the schema.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default", "skipped-discriminator"}  # noqa: RUF012 - as in the base class

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of a model, with additionalProperties false if it forbids extra keys."""
        return _close_object(super().model_schema(schema), schema)

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of a dataclass, with additionalProperties false if it forbids extra keys."""
        return _close_object(super().dataclass_schema(schema), schema)

    def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of a typed dict with its extra keys, which older releases of pydantic omit."""
        written = super().typed_dict_schema(schema)
        extra = schema.get("extras_schema", {"type": "any"})
        further = self.generate_inner(extra) or True  # any value
        return {**written, "additionalProperties": further if schema["extra_behavior"] == "allow" else False}

    def encode_default(self, dft: Any) -> Any:
        """Return a default; a member of an enumeration as it is validated."""
        if isinstance(dft, enum.Enum) and not isinstance(dft.value, (str, int, float, type(None))):
            return dft.name
        return super().encode_default(dft)

    def enum_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of an enumeration, with member names if its values are numbers."""
        return name_members(super().enum_schema(schema), schema["members"])

    def json_or_python_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema, marked if it is a secret; pydantic marks only some of its types."""
        written = super().json_or_python_schema(schema)
        serializer = schema.get("serialization", {}).get("function")
        secret = getattr(serializer, "__module__", "") == "pydantic.types" and "secret" in serializer.__name__
        return {**written, "format": PASSWORD, "writeOnly": True} if secret else written

    def bytes_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of bytes, which are sent as base64."""
        written: JsonSchemaValue = {"type": "string", "format": "base64"}
        self.update_with_validations(written, schema, self.ValidationsMapping.bytes)
        return written


def _close_object(written: JsonSchemaValue, schema: Any) -> JsonSchemaValue:
    if schema["config"]["extra_fields_behavior"] == "forbid":
        written.setdefault("additionalProperties", False)
    return written
