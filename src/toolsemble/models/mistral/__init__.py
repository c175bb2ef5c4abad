"""The models of Mistral."""

from __future__ import annotations

from toolsemble._runtime.lazy import export_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolsemble.models.mistral._model import MistralModel as MistralModel

__getattr__, __dir__, __all__ = export_lazily(globals(), {"_model": ("MistralModel",)})
