"""The weights of embedded models: the catalogue, the sources, the download and the cache.

Only :func:`pull` downloads anything: neither an import nor creating an object does.

>>> from toolsemble.weights import entry
>>> entry("small").file
'qwen2.5-coder-0.5b-instruct-q4_k_m.gguf'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble.runtime.lazy import export_lazily

if TYPE_CHECKING:
    from toolsemble.local.weights.cache import cache_directory as cache_directory, located as located
    from toolsemble.local.weights.catalogue import (
        CATALOGUE as CATALOGUE,
        Parts as Parts,
        Weights as Weights,
        entry as entry,
    )
    from toolsemble.local.weights.download import pull as pull
    from toolsemble.local.weights.hub import HubSource as HubSource
    from toolsemble.local.weights.index import IndexSource as IndexSource
    from toolsemble.local.weights.source import (
        Phase as Phase,
        PullProgress as PullProgress,
        Source as Source,
        SourceError as SourceError,
    )

# Loaded lazily: finding a file does not load the code that downloads.
__getattr__, __dir__, __all__ = export_lazily(
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
