"""The built-in tools; importing one loads only its module and needs only its extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble._runtime.lazy import export_lazily

if TYPE_CHECKING:
    from toolsemble.builtin._calculator import CalculatorTool as CalculatorTool
    from toolsemble.builtin._datetimes import DateTimeTool as DateTimeTool
    from toolsemble.builtin._file_read import FileReadTool as FileReadTool
    from toolsemble.builtin._file_write import FileWriteTool as FileWriteTool
    from toolsemble.builtin._http_tool import HttpTool as HttpTool
    from toolsemble.builtin._human_input import HumanInputTool as HumanInputTool
    from toolsemble.builtin._json_parser import JsonParserTool as JsonParserTool
    from toolsemble.builtin._process import ProcessTool as ProcessTool
    from toolsemble.builtin._web_scraper import WebScraperTool as WebScraperTool
    from toolsemble.builtin._web_search import (
        BraveSearch as BraveSearch,
        DuckDuckGoSearch as DuckDuckGoSearch,
        SearchHit as SearchHit,
        SearchProvider as SearchProvider,
        SearxngSearch as SearxngSearch,
        SerpApiSearch as SerpApiSearch,
        TavilySearch as TavilySearch,
        WebSearchTool as WebSearchTool,
    )

# Lazy, so that a tool does not load the others or need their extras.
__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "_calculator": ("CalculatorTool",),
        "_datetimes": ("DateTimeTool",),
        "_file_read": ("FileReadTool",),
        "_file_write": ("FileWriteTool",),
        "_http_tool": ("HttpTool",),
        "_human_input": ("HumanInputTool",),
        "_json_parser": ("JsonParserTool",),
        "_process": ("ProcessTool",),
        "_web_search": (
            "BraveSearch",
            "DuckDuckGoSearch",
            "SearchHit",
            "SearchProvider",
            "SearxngSearch",
            "SerpApiSearch",
            "TavilySearch",
            "WebSearchTool",
        ),
        "_web_scraper": ("WebScraperTool",),
    },
)
