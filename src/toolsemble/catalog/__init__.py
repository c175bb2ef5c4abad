"""Catalogs: any number of tools, of which a model sees only the ones that it needs."""

from __future__ import annotations

from toolsemble._runtime.lazy import export_lazily

# Not from typing: importing it would take longer than the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolsemble.catalog._catalog import Catalog as Catalog
    from toolsemble.catalog._entry import estimate_tokens as estimate_tokens
    from toolsemble.catalog._sources import Source as Source
    from toolsemble.catalog._token_budget import Explanation as Explanation, ToolCost as ToolCost

__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "_catalog": ("Catalog",),
        "_token_budget": ("Explanation", "ToolCost"),
        "_sources": ("Source",),
        "_entry": ("estimate_tokens",),
    },
)
