import json
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest

from toolsemble import ToolDefinitionError
from toolsemble._runtime.extras import import_extra, install_command


def install_from(monkeypatch, record):
    """Let the library appear as installed from somewhere."""

    def find(name):
        assert name == "toolsemble"
        if isinstance(record, Exception):
            raise record
        text = record if record is None or isinstance(record, str) else json.dumps(record)
        return SimpleNamespace(read_text=lambda file: text if file == "direct_url.json" else None)

    monkeypatch.setattr("importlib.metadata.distribution", find)


@pytest.mark.parametrize(
    ("record", "command"),
    [
        (None, "pip install 'toolsemble[web]'"),
        ("", "pip install 'toolsemble[web]'"),
        ("{", "pip install 'toolsemble[web]'"),
        ("[]", "pip install 'toolsemble[web]'"),
        ("{}", "pip install 'toolsemble[web]'"),
        (PackageNotFoundError("toolsemble"), "pip install 'toolsemble[web]'"),
        (OSError("no such file"), "pip install 'toolsemble[web]'"),
        ({"url": "file:///src/tools", "dir_info": {}}, "pip install '/src/tools[web]'"),
        ({"url": "file:///src/tools", "dir_info": {"editable": True}}, "pip install -e '/src/tools[web]'"),
        ({"url": "file:///my%20src", "dir_info": {}}, "pip install '/my src[web]'"),
        ({"url": "file:///ada's", "dir_info": {}}, 'pip install "/ada\'s[web]"'),
        (
            {"url": "https://example.com/t.git", "vcs_info": {"vcs": "git", "commit_id": "0f1e"}},
            "pip install 'toolsemble[web] @ git+https://example.com/t.git'",
        ),
        (
            {"url": "https://example.com/t.git", "vcs_info": {"vcs": "git", "requested_revision": "main"}},
            "pip install 'toolsemble[web] @ git+https://example.com/t.git@main'",
        ),
        (
            {"url": "https://example.com/t-0.1.whl", "archive_info": {}},
            "pip install 'toolsemble[web] @ https://example.com/t-0.1.whl'",
        ),
    ],
)
def test_the_command_installs_from_where_the_library_came(monkeypatch, record, command):
    install_from(monkeypatch, record)
    assert install_command("web") == command


def test_a_missing_package_is_reported_with_the_command(monkeypatch):
    install_from(monkeypatch, {"url": "file:///src/tools", "dir_info": {"editable": True}})
    with pytest.raises(ToolDefinitionError) as refused:
        import_extra("no_such_package", extra="web", user="WebScraperTool")
    assert str(refused.value) == (
        "WebScraperTool needs the package 'no_such_package': pip install -e '/src/tools[web]'"
    )
