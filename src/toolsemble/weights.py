"""The files of embedded models: which there are, where they come from, and how they get here.

Nothing is downloaded but by :func:`pull`: not by an import, nor by making an object.

>>> from toolsemble.weights import entry
>>> entry("small").file
'qwen2.5-coder-0.5b-instruct-q4_k_m.gguf'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble.runtime.lazy import loader

if TYPE_CHECKING:
    from toolsemble.local.weights.cache import cache_directory, located
    from toolsemble.local.weights.catalogue import CATALOGUE, Parts, Weights, entry
    from toolsemble.local.weights.download import pull
    from toolsemble.local.weights.hub import HubSource
    from toolsemble.local.weights.index import IndexSource
    from toolsemble.local.weights.source import Phase, PullProgress, Source, SourceError

__all__ = [
    "CATALOGUE",
    "HubSource",
    "IndexSource",
    "Parts",
    "Phase",
    "PullProgress",
    "Source",
    "SourceError",
    "Weights",
    "cache_directory",
    "entry",
    "located",
    "pull",
]

# Who only asks where a file is loads nothing that downloads.
__getattr__ = loader(
    globals(),
    {
        ".local.weights.cache": ("cache_directory", "located"),
        ".local.weights.catalogue": ("CATALOGUE", "Parts", "Weights", "entry"),
        ".local.weights.download": ("pull",),
        ".local.weights.hub": ("HubSource",),
        ".local.weights.index": ("IndexSource",),
        ".local.weights.source": ("Phase", "PullProgress", "Source", "SourceError"),
    },
)
