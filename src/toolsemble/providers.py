"""The list of providers, and the wire format of each.

No SDK is imported.

>>> PROVIDERS["google"].models
('google', 'gemini')
"""

from __future__ import annotations

from toolsemble._vocabulary.provider_list import PROVIDERS, Provider, load_wire_format

__all__ = ["PROVIDERS", "Provider", "load_wire_format"]
