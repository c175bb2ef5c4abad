"""The models of Amazon Bedrock."""

from __future__ import annotations

from toolsemble._runtime.lazy import export_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolsemble.models.bedrock._model import BedrockModel as BedrockModel

__getattr__, __dir__, __all__ = export_lazily(globals(), {"_model": ("BedrockModel",)})
