"""The models of Amazon Bedrock."""

from __future__ import annotations

from toolsemble.runtime.lazy import export_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolsemble.models.bedrock.model import BedrockModel as BedrockModel

__getattr__, __dir__, __all__ = export_lazily(globals(), {"model": ("BedrockModel",)})
