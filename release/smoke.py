"""Install a wheel with each extra in a new environment, without the checkout, and use it there.

``python release/smoke.py WHEEL [EXTRA…]``; without extras, the base package and all of them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BASE = """
    from toolsemble import Toolbox, ToolCall, tool

    @tool
    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    reply = Toolbox([add]).execute(ToolCall("add", '{"a": 1, "b": "2"}'))
    assert reply.text == "3", reply
"""

# The programs use what an extra is for. "base" stands for the package without extras.
PROGRAMS = {
    "base": """
        import subprocess, sys
        command = subprocess.run([sys.executable, "-m", "toolsemble", "version"], capture_output=True, text=True)
        assert "pip install" in command.stderr and "[cli]" in command.stderr, command
    """,
    "anthropic": "from toolsemble.models import AnthropicModel; AnthropicModel('claude', api_key='key')",
    "bedrock": "from toolsemble.models import BedrockModel; BedrockModel('nova', region='us-east-1', api_key='key')",
    "cli": """
        import subprocess, sys
        command = [sys.executable, "-m", "toolsemble", "call", "calculator", "input=2+3"]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "5"
    """,
    "dask": """
        from distributed import Client
        from toolsemble.engines.dask import executor
        read = tool(effects="read")(add.__wrapped__)
        with Client(processes=False, dashboard_address="127.0.0.1:0") as client:
            box = Toolbox([read], executor=executor(client))
            assert box.execute(ToolCall("add", {"a": 1, "b": 2})).text == "3"
    """,
    "datetime": """
        from toolsemble.builtin import DateTimeTool
        assert DateTimeTool().execute("2024-01-31 + 1 month").text == "2024-02-29"
    """,
    "dbos": "from toolsemble.engines.dbos import DBOSEngine; DBOSEngine(client=object())",
    "google": "from toolsemble.models import GoogleModel; GoogleModel('gemini', api_key='key')",
    "http": """
        from toolsemble.builtin import HttpTool
        reply = HttpTool("ask", "Ask.", "http://127.0.0.1:9/", allow_hosts=["127.0.0.1"]).execute("{}")
        assert "127.0.0.1" in reply.text and not reply.is_success, reply
    """,
    "json": """
        from toolsemble.builtin import JsonParserTool
        assert JsonParserTool().execute({"json": '{"a": [1, 2]}', "json_path": "$.a[1]"}).text == "[2]"
    """,
    "local": """
        import xllamacpp
        from toolsemble.models import LocalModel
        assert LocalModel().path.suffix == ".gguf"
    """,
    "mcp": """
        import pathlib, sys
        from toolsemble import ToolCall, Toolbox
        from toolsemble.mcp import MCPClient
        program = '''
        from toolsemble import Toolbox, tool
        from toolsemble.mcp import serve

        @tool
        def double(number: int) -> int:
            "Double a number."
            return 2 * number

        serve(Toolbox([double]))
        '''
        server = pathlib.Path("server.py")
        server.write_text(program)
        with MCPClient.stdio(sys.executable, str(server)) as client:
            assert Toolbox(client).execute(ToolCall("double", '{"number": "4"}')).text == "8"
    """,
    "mistral": "from toolsemble.models import MistralModel; MistralModel('small', api_key='key')",
    "openai": "from toolsemble.models import OpenAIModel; OpenAIModel('gpt', api_key='key')",
    "otel": """
        from toolsemble.telemetry import OpenTelemetry
        assert Toolbox([add], sinks=[OpenTelemetry()]).execute(ToolCall("add", {"a": 1, "b": 2})).text == "3"
    """,
    "postgres": """
        from toolsemble import RunJournal, ToolConfigurationError
        try:
            RunJournal("postgresql://ada:secret@127.0.0.1:9/app")
        except ToolConfigurationError as problem:
            assert "'postgresql://ada@127.0.0.1:9/app' cannot be reached" in str(problem), problem
        else:
            raise AssertionError("there is no server at port 9")
    """,
    "prices": "from toolsemble import Prices; assert Prices.for_model('openai:gpt-4o').input > 0",
    "prometheus": """
        from toolsemble.telemetry import PrometheusMetrics
        assert Toolbox([add], metrics=PrometheusMetrics()).execute(ToolCall("add", {"a": 1, "b": 2})).text == "3"
    """,
    "ray": "from toolsemble.engines.ray import executor; Toolbox([add], executor=executor())",
    "temporal": "from toolsemble.engines.temporal import TemporalEngine; TemporalEngine(None)",
    "ui": """
        import subprocess, sys
        command = [sys.executable, "-m", "toolsemble", "ui", "--help"]
        assert "--read-only" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
        import toolsemble._ui.server
    """,
    "web": """
        from toolsemble.builtin import WebScraperTool
        reply = WebScraperTool(allow_hosts=["127.0.0.1"]).execute("http://127.0.0.1:9/")
        assert not reply.is_success, reply
    """,
    "yaml": """
        import pathlib
        from toolsemble import ToolDefinitionError
        from toolsemble.builtin import HttpTool
        pathlib.Path("empty.yaml").write_text("openapi: 3.1.0\\ninfo: {title: a, version: '1'}\\npaths: {}\\n")
        try:
            HttpTool.from_openapi(pathlib.Path("empty.yaml"), base_url="https://example.com")
        except ToolDefinitionError as problem:
            assert "YAML" not in str(problem), problem
    """,
}


def write_program(extra: str) -> str:
    """Return the program of an extra, after the one of the base package."""
    return textwrap.dedent(BASE) + textwrap.dedent(PROGRAMS[extra])


def try_extra(wheel: Path, extra: str) -> str:
    """Install an extra in a separate environment and run its program; return the problem, or an empty text."""
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "env", "Scripts" if sys.platform == "win32" else "bin", "python")
        requirement = str(wheel) if extra == "base" else f"{wheel}[{extra}]"
        Path(folder, "smoke.py").write_text(write_program(extra), encoding="utf-8")
        for command in (
            [sys.executable, "-m", "venv", str(python.parents[1])],
            [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", requirement],
            [str(python), "-P", "smoke.py"],
        ):
            done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)  # noqa: S603 - the commands above
            if done.returncode:
                return (done.stdout + done.stderr).strip()
    return ""


def report(wheel: Path, extra: str) -> bool:
    """Print how an extra does, and return whether it works."""
    start = time.monotonic()
    problem = try_extra(wheel, extra)
    print(f"smoke: {extra}: {problem or 'ok'} ({time.monotonic() - start:.0f} s)", flush=True)
    return not problem


def main(wheel: Path, extras: list[str]) -> int:
    """Try all extras, two at a time, and return the exit code."""
    with ThreadPoolExecutor(2) as pool:
        works = list(pool.map(lambda extra: report(wheel, extra), extras or list(PROGRAMS)))
    return 0 if all(works) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
