"""Informal names of time zones: abbreviations, countries and cities."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_NICKNAMES_BY_ZONE = {
    "America/New_York": "est edt et eastern usa us america united_states",
    "America/Chicago": "cst cdt ct central",
    "America/Denver": "mdt mt mountain",
    "America/Los_Angeles": "pst pdt pt pacific california san_francisco",
    "America/Anchorage": "akst akdt alaska",
    "Pacific/Honolulu": "hawaii",
    "America/Halifax": "ast adt",
    "America/Toronto": "canada",
    "America/Mexico_City": "mexico",
    "America/Sao_Paulo": "brt brazil",
    "America/Argentina/Buenos_Aires": "art argentina",
    "Europe/London": "bst uk england britain united_kingdom",
    "Europe/Lisbon": "west",
    "Europe/Berlin": "cest germany",
    "Europe/Paris": "france",
    "Europe/Madrid": "spain",
    "Europe/Rome": "italy",
    "Europe/Amsterdam": "netherlands",
    "Europe/Zurich": "switzerland",
    "Europe/Stockholm": "sweden",
    "Europe/Athens": "eest greece",
    "Europe/Kyiv": "ukraine",
    "Europe/Moscow": "msk russia",
    "Africa/Johannesburg": "sast south_africa",
    "Africa/Lagos": "wat nigeria",
    "Africa/Nairobi": "eat kenya",
    "Asia/Dubai": "gst uae",
    "Asia/Karachi": "pkt pakistan",
    "Asia/Kolkata": "ist india mumbai delhi new_delhi bangalore",
    "Asia/Bangkok": "ict thailand",
    "Asia/Jakarta": "wib indonesia",
    "Asia/Singapore": "sgt",
    "Asia/Shanghai": "china beijing",
    "Asia/Hong_Kong": "hkt",
    "Asia/Seoul": "kst korea south_korea",
    "Asia/Tokyo": "jst",
    "Australia/Perth": "awst",
    "Australia/Adelaide": "acst acdt",
    "Australia/Sydney": "aest aedt australia",
    "Pacific/Auckland": "nzst nzdt new_zealand",
}
NICKNAMES: Mapping[str, str] = MappingProxyType(
    {nickname: zone for zone, nicknames in _NICKNAMES_BY_ZONE.items() for nickname in nicknames.split()}
)
"""The zone that is most likely meant, by its informal name in lower case."""
