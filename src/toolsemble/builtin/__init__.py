"""The built-in tools; importing one loads only its module and needs only its extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble.runtime.lazy import export_lazily

if TYPE_CHECKING:
    from toolsemble.builtin.calculator import CalculatorTool as CalculatorTool
    from toolsemble.builtin.datetimes import DateTimeTool as DateTimeTool
    from toolsemble.builtin.file_read import FileReadTool as FileReadTool
    from toolsemble.builtin.file_write import FileWriteTool as FileWriteTool
    from toolsemble.builtin.http_tool import HttpTool as HttpTool
    from toolsemble.builtin.human_input import HumanInputTool as HumanInputTool
    from toolsemble.builtin.json_parser import JsonParserTool as JsonParserTool
    from toolsemble.builtin.process import ProcessTool as ProcessTool
    from toolsemble.builtin.search import (
        BraveSearch as BraveSearch,
        DuckDuckGoSearch as DuckDuckGoSearch,
        SearchHit as SearchHit,
        SearchProvider as SearchProvider,
        SearxngSearch as SearxngSearch,
        SerpApiSearch as SerpApiSearch,
        TavilySearch as TavilySearch,
    )
    from toolsemble.builtin.web_scraper import WebScraperTool as WebScraperTool
    from toolsemble.builtin.web_search import WebSearchTool as WebSearchTool

# Lazy, so that a tool does not load the others or need their extras.
__getattr__, __dir__, __all__ = export_lazily(
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
