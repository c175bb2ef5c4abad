"""The weights of embedded models: the catalogue, the sources, the download and the cache.

Only :func:`pull` downloads anything: neither an import nor creating an object does.

>>> from toolsemble.weights import entry
>>> entry("small").file
'qwen2.5-coder-0.5b-instruct-q4_k_m.gguf'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble._runtime.lazy import export_lazily

if TYPE_CHECKING:
    from toolsemble.models._local.weights.cache import cache_directory as cache_directory, located as located
    from toolsemble.models._local.weights.catalogue import (
        CATALOGUE as CATALOGUE,
        Parts as Parts,
        Phase as Phase,
        PullProgress as PullProgress,
        Source as Source,
        SourceError as SourceError,
        Weights as Weights,
        entry as entry,
    )
    from toolsemble.models._local.weights.download import pull as pull
    from toolsemble.models._local.weights.hub import HubSource as HubSource
    from toolsemble.models._local.weights.index import IndexSource as IndexSource

# Loaded lazily: finding a file does not load the code that downloads.
__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        ".models._local.weights.cache": ("cache_directory", "located"),
        ".models._local.weights.catalogue": (
            "CATALOGUE",
            "Parts",
            "Phase",
            "PullProgress",
            "Source",
            "SourceError",
            "Weights",
            "entry",
        ),
        ".models._local.weights.download": ("pull",),
        ".models._local.weights.hub": ("HubSource",),
        ".models._local.weights.index": ("IndexSource",),
    },
)
