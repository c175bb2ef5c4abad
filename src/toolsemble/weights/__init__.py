"""The files of embedded models: which there are, where they come from, and how they get here.

Nothing is downloaded but by :func:`pull`: not by an import, nor by making an object.

>>> from toolsemble.weights import entry
>>> entry("small").file
'qwen2.5-coder-0.5b-instruct-q4_k_m.gguf'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble.lazy import loader

if TYPE_CHECKING:
    from toolsemble.weights.cache import cache_directory, located
    from toolsemble.weights.catalogue import CATALOGUE, Parts, Weights, entry
    from toolsemble.weights.download import pull
    from toolsemble.weights.hub import HubSource
    from toolsemble.weights.index import IndexSource
    from toolsemble.weights.source import Phase, PullProgress, Source, SourceError

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
        "cache": ("cache_directory", "located"),
        "catalogue": ("CATALOGUE", "Parts", "Weights", "entry"),
        "download": ("pull",),
        "hub": ("HubSource",),
        "index": ("IndexSource",),
        "source": ("Phase", "PullProgress", "Source", "SourceError"),
    },
)
