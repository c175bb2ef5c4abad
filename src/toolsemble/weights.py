"""The weights of embedded models: the catalogue, the sources, the download and the cache.

Only :func:`pull` downloads anything: neither an import nor creating an object does.

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

# Loaded lazily: finding a file does not load the code that downloads.
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
