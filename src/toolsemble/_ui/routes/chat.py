"""The endpoint of the chat page: a run of an agent, streamed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from toolsemble._runtime.text import describe_with_class
from toolsemble._runtime.watchers import watch
from toolsemble._ui.endpoint import RefusedError, read_asked
from toolsemble._ui.feed import find_person, write_message
from toolsemble._ui.guard import refuse
from toolsemble._ui.interface import Interface
from toolsemble._vocabulary.call import new_run_id
from toolsemble.agent._agent import Agent
from toolsemble.agent._event import Event, Final
from toolsemble.agent.streams._delivery import SSE_HEADERS
from toolsemble.agent.streams._server_sent import sse

_MOST_CHATS = 200


async def chat(request: Request) -> Response:
    """Answer a message, and stream the run's events; the run ends when the client disconnects."""
    interface: Interface = request.app.state.interface
    try:
        asked = await read_asked(request, operator=True)
        agent = _find_agent(interface, asked.take("agent", str, ""))
        prompt, name = asked.take("prompt", str, ""), asked.take("chat", str, "")
        if not prompt.strip() or not name:
            raise RefusedError(400, "A message needs a 'prompt' and the id of its 'chat'")  # noqa: TRY301 - one handler
    except RefusedError as error:
        return refuse(error.status, str(error))
    # Not the bare name: the page chooses it, and it could be another user's memory id.
    memory_id = f"ui/{asked.person.name}/{name}"
    parts = _end_with_role(request, _stream(interface, agent, prompt, memory_id))
    return StreamingResponse(parts, headers=dict(SSE_HEADERS))


async def _end_with_role(request: Request, parts: AsyncGenerator[str, None]) -> AsyncIterator[str]:
    """Yield a stream's parts while the person has the operator role."""
    async with aclosing(parts):
        async for part in parts:
            person = find_person(request)
            if person is None or not person.may_operate:
                return
            yield part


async def _stream(interface: Interface, agent: Agent[Any], prompt: str, memory_id: str) -> AsyncGenerator[str, None]:
    run_id = new_run_id()
    yield write_message("run", {"run_id": run_id})
    settings: dict[str, Any] = {"run_id": run_id, "memory_id": memory_id, **interface.choose_reviewer(agent)}
    settings["deps"] = interface.targets.deps
    if memory_id in interface.chats:
        settings["history"] = interface.chats[memory_id]
    watch(*interface.record().outlets)
    events = _remember(interface, memory_id, agent.stream(prompt, **settings))
    async with aclosing(sse(events, show_failures=True, show_thoughts=True, on_error=describe_with_class)) as parts:
        async for part in parts:
            yield part


async def _remember(
    interface: Interface, memory_id: str, events: AsyncGenerator[Event[Any], None]
) -> AsyncGenerator[Event[Any], None]:
    """Yield a run's events, and store the conversation at its end."""
    try:
        async for event in events:
            if isinstance(event, Final):
                interface.chats.pop(memory_id, None)
                interface.chats[memory_id] = event.result.messages
                while len(interface.chats) > _MOST_CHATS:
                    interface.chats.pop(next(iter(interface.chats)))  # the least recently used one
            yield event
    finally:
        await events.aclose()


def _find_agent(interface: Interface, name: str) -> Agent[Any]:
    agent = interface.targets.agents.get(name)
    if agent is None:
        raise RefusedError(404, f"There is no agent '{name:.80}'; start the server with its module or file")
    return agent


ROUTES = [Route("/api/chat", chat, methods=["POST"])]
