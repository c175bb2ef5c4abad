"""The pages of the web interface: each has an address, and the menu leads to pages that exist."""

import re
from pathlib import Path

import toolsemble._ui

STATIC = Path(toolsemble._ui.__file__).parent / "static"
MAIN = (STATIC / "main.mjs").read_text(encoding="utf-8")
IMPORTED = dict(re.findall(r'^import \{ (\w+) \} from "\./pages/([\w.]+)";$', MAIN, re.MULTILINE))
ADDRESSES = dict(re.findall(r'"(/\w*)": (\w+)', MAIN))


def test_every_page_is_imported_and_has_an_address():
    files = {path.name for path in (STATIC / "pages").glob("*.mjs")}
    assert set(IMPORTED.values()) == files, "import each page in main.mjs"
    assert set(ADDRESSES.values()) == IMPORTED.keys(), "add each page to PAGES in main.mjs"


def test_menu_leads_to_pages_with_different_keys():
    items = re.findall(r'\["(/\w+)", "[\w ]+", "(\d)"', MAIN)
    assert {address for address, _ in items} <= ADDRESSES.keys()
    assert len({key for _, key in items}) == len(items), "each page of the menu has a key of its own"
