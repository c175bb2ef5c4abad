"""The models of Anthropic."""

from __future__ import annotations

from toolsemble._runtime.lazy import export_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolsemble.models.anthropic._model import AnthropicModel as AnthropicModel

__getattr__, __dir__, __all__ = export_lazily(globals(), {"_model": ("AnthropicModel",)})
