"""The command ``serve``, which serves tools by the Model Context Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolsemble.cli.exit_codes import Exit
from toolsemble.cli.redirect import redirect_prints
from toolsemble.cli.screen import Screen
from toolsemble.cli.targets import load_object, load_toolbox, load_tools, split_targets
from toolsemble.errors import ToolDefinitionError
from toolsemble.mcp import serve
from toolsemble.toolbox.toolbox import Toolbox


def serve_targets(
    targets: Sequence[str], http: str | None, gates: Sequence[str], hosts: Sequence[str], screen: Screen
) -> Exit:
    """Serve the tools of targets until the client leaves, or the program is interrupted."""
    with redirect_prints():  # what a module prints while it is loaded must not reach the protocol
        box = _load(split_targets(targets), gates)
    if http is not None:
        screen.report(f"serving {', '.join(box.names)} at http://{http}/mcp")
    serve(box, http=http, allowed_hosts=hosts)
    return Exit.DONE


def _load(targets: Sequence[str], gates: Sequence[str]) -> Toolbox:
    """Return a toolbox with the tools of all targets, gated by patterns of names."""
    agents = {target: agent for target in targets if (agent := _find_agent(target)) is not None}
    if not gates and not agents:
        return load_toolbox(targets)
    tools = [tool for target in targets for tool in ([agents[target]] if target in agents else load_tools(target))]
    if any(isinstance(tool, Toolbox) for tool in tools):
        raise ToolDefinitionError(
            f"{', '.join(targets)}: a toolbox has its own rules; declare its gates in the program, with approve=[...]"
        )
    return Toolbox(tools, approve=gates or None)


def _find_agent(target: str) -> Any:
    """Return the agent at a target as a tool named after its attribute; None if it is not an agent."""
    name = target.rpartition(":")[2]
    make_tool = getattr(load_object(target), "as_tool", None) if ":" in target and name.isidentifier() else None
    return None if make_tool is None else make_tool(name, "Does a task, or answers a question, in plain text")
