"""Models for OpenAI and servers with a compatible API."""

from __future__ import annotations

from toolsemble._runtime.lazy import export_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolsemble.models.openai._model import OpenAIModel as OpenAIModel

__getattr__, __dir__, __all__ = export_lazily(globals(), {"_model": ("OpenAIModel",)})
