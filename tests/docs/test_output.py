"""The examples of pages: their output is compared with the `text` blocks below, and their errors are shown."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRINT = "```python\nprint('one two')\n```\n"


@pytest.fixture(scope="module")
def root_conftest():
    specification = importlib.util.spec_from_file_location("root_conftest", ROOT / "conftest.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("page", "matches"),
    [
        (f"{PRINT}\n```text\none two\n```\n", True),
        (f"{PRINT}\n```text\none\ntwo\n```\n", True),
        (f"{PRINT}\n```text\none ...\n```\n", True),
        (f"{PRINT}\n```text\none three\n```\n", False),
        (f"{PRINT}\n<!-- invisible-code-block: python\nprint(3)\n-->\n\n```text\none three\n```\n", False),
        (f"{PRINT}\nAn unrelated text:\n\n```text\nthree\n```\n", True),
        ("```python\nx = 1\n```\n\n```text\none\n```\n", False),
        ("```text\none\n```\n", True),
    ],
)
def test_text_block_is_output_of_python_block_above(root_conftest, tmp_path, page, matches):
    path = tmp_path / "page.md"
    path.write_text(page, encoding="utf-8")
    document = root_conftest.pages.parse(path)
    failures = []
    for example in document.examples():
        try:
            example.evaluate()
        except AssertionError as failure:
            failures.append(str(failure))
    assert (failures == []) is matches


def test_errors_without_a_traceback_in_the_block_are_shown(root_conftest, request):
    group = ExceptionGroup("not closed", [ResourceWarning("unclosed loop"), ResourceWarning("unclosed socket")])
    with pytest.raises(ExceptionGroup) as caught:
        raise group
    shown = str(caught.getrepr(tbfilter=lambda error: root_conftest.show_traceback(request.node, error)))
    assert "unclosed loop" in shown
    assert "unclosed socket" in shown
