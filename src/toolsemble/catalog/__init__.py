"""Catalogs: any number of tools, of which a model sees what it needs."""

from __future__ import annotations

from toolsemble.runtime.lazy import export_lazily

# Not from typing: importing that would take longer than all the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolsemble.catalog.catalog import Catalog as Catalog
    from toolsemble.catalog.explanation import Explanation as Explanation, ToolCost as ToolCost
    from toolsemble.catalog.sources import Source as Source
    from toolsemble.catalog.tokens import estimate_tokens as estimate_tokens

__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "catalog": ("Catalog",),
        "explanation": ("Explanation", "ToolCost"),
        "sources": ("Source",),
        "tokens": ("estimate_tokens",),
    },
)
