"""The page about the speed of MCP is the one that the results give, and marks what is missed."""

import bench_mcp
import findings
from protocol.measure import SETTINGS
from protocol.page import write_page

FOUND = findings.read(bench_mcp.RESULTS)


def test_the_page_shows_the_results():
    assert bench_mcp.PAGE.read_text(encoding="utf-8") == write_page(FOUND)
    assert len(FOUND["rows"]) == 4 * len(SETTINGS)


def test_missed_aims_are_marked():
    cpu = {"sdk": 1.0, "toolsemble": 1.2, "fastmcp": 1.1}
    figures = {name: {"cpu": {"seconds": ratio, "ratio": ratio}} for name, ratio in cpu.items()}
    setting = {"side": "client", "transport": "stdio", "revision": "2026-07-28", "job": "calls"}
    page = write_page({**FOUND, "rows": [{**setting, "figures": figures}]})
    assert "1.20 s, **1.20** (missed: > 1.15, > FastMCP) | 1.10 s, **1.10** |" in page
