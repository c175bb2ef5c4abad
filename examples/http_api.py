"""Use an HTTP API as tools: one typed tool for each operation of its OpenAPI document.

The program starts a small API on localhost. ``python examples/http_api.py --model scripted``
"""

import argparse
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from toolsemble import Agent, ChatModel, ToolCall
from toolsemble.builtin import HttpTool
from toolsemble.testing import ScriptedModel

DOCUMENT = Path(__file__).with_name("tasks.openapi.json")
TASKS = ["water the roses"]
WRONG, RIGHT = ToolCall("add_task", {"body": {}}), ToolCall("add_task", {"body": {"text": "bake bread"}})
SCRIPTED = ScriptedModel([ToolCall("list_tasks"), WRONG, RIGHT, "Now it is on the list."])


class Api(BaseHTTPRequestHandler):
    """The API: a list of tasks in memory."""

    def do_GET(self) -> None:
        """Return all tasks."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(TASKS).encode())

    def do_POST(self) -> None:
        """Add a task, and return all tasks."""
        TASKS.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main(model: ChatModel | str | None = None) -> None:
    """Serve the API, let the model use it, and print the reply to each call."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        site = f"http://127.0.0.1:{server.server_port}"  # private addresses must be in allow_hosts
        tools = HttpTool.from_openapi(DOCUMENT.read_text("utf-8"), base_url=site, allow_hosts=["127.0.0.1"])
        result = Agent(model, tools).run_sync("Add the task to bake bread, unless it is on the list.")
        server.shutdown()
    print(*(f"{record.call.name}: {record.reply.text}" for record in result.tool_calls), result.text, sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="openai:gpt-5-mini, local, scripted, ...; default: the first one available")
    name = parser.parse_args().model
    main(SCRIPTED if name == "scripted" else name)
