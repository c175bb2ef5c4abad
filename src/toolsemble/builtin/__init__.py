"""The built-in tools; importing one loads only its module and needs only its extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble.runtime.lazy import loader

if TYPE_CHECKING:
    from toolsemble.builtin.calculator import CalculatorTool
    from toolsemble.builtin.datetimes import DateTimeTool
    from toolsemble.builtin.file_read import FileReadTool
    from toolsemble.builtin.file_write import FileWriteTool
    from toolsemble.builtin.http_tool import HttpTool
    from toolsemble.builtin.human_input import HumanInputTool
    from toolsemble.builtin.json_parser import JsonParserTool
    from toolsemble.builtin.process import ProcessTool
    from toolsemble.builtin.search import (
        BraveSearch,
        DuckDuckGoSearch,
        SearchHit,
        SearchProvider,
        SearxngSearch,
        SerpApiSearch,
        TavilySearch,
    )
    from toolsemble.builtin.web_scraper import WebScraperTool
    from toolsemble.builtin.web_search import WebSearchTool

__all__ = [
    "BraveSearch",
    "CalculatorTool",
    "DateTimeTool",
    "DuckDuckGoSearch",
    "FileReadTool",
    "FileWriteTool",
    "HttpTool",
    "HumanInputTool",
    "JsonParserTool",
    "ProcessTool",
    "SearchHit",
    "SearchProvider",
    "SearxngSearch",
    "SerpApiSearch",
    "TavilySearch",
    "WebScraperTool",
    "WebSearchTool",
]

# Lazy, so that a tool does not load the others or need their extras.
__getattr__ = loader(
    globals(),
    {
        "calculator": ("CalculatorTool",),
        "datetimes": ("DateTimeTool",),
        "file_read": ("FileReadTool",),
        "file_write": ("FileWriteTool",),
        "http_tool": ("HttpTool",),
        "human_input": ("HumanInputTool",),
        "json_parser": ("JsonParserTool",),
        "process": ("ProcessTool",),
        "search": (
            "BraveSearch",
            "DuckDuckGoSearch",
            "SearchHit",
            "SearchProvider",
            "SearxngSearch",
            "SerpApiSearch",
            "TavilySearch",
        ),
        "web_scraper": ("WebScraperTool",),
        "web_search": ("WebSearchTool",),
    },
)
