"""Serve several users with one agent at the same time, with a separate conversation memory for each.

Starts a TCP server and three clients: ``python examples/async_service.py --model scripted``
"""

import argparse
import asyncio

from toolsemble import Agent, ChatModel, ConversationMemory, ToolCall, tool
from toolsemble.models import ChatRequest
from toolsemble.testing import FunctionModel

USERS = {"ada": "Rome", "bob": "Oslo", "eve": "Lima"}


@tool(effects="read")
async def free_seats(city: str) -> int:
    """Return the number of free seats on the plane to a city."""
    await asyncio.sleep(0.01)  # stands in for a database query
    return {"Rome": 3, "Lima": 12}.get(city, 0)


@FunctionModel
def scripted(request: ChatRequest) -> str | ToolCall:
    """Read the destination from the first message of the conversation."""
    city, last = request.messages[0].text.split()[-1], request.messages[-1].text
    return f"{last} seats to {city}." if last.isdigit() else ToolCall("free_seats", {"city": city})


async def play(port: int, *lines: str) -> str:
    """Act as a user: send a name and questions, and return the answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("\n".join([*lines, "", ""]).encode())
    heard = (await reader.read()).decode()
    writer.close()
    return f"{lines[0]}: {' '.join(heard.split())}"


async def main(model: ChatModel | str | None = None) -> None:
    """Serve until all three users have their answers."""
    agent = Agent(model, [free_seats], memory=ConversationMemory())

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        user = (await reader.readline()).decode().strip()
        while question := (await reader.readline()).decode().strip():
            writer.write(f"{(await agent.run(question, memory_id=user)).text}\n".encode())
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        at: int = server.sockets[0].getsockname()[1]
        played = [play(at, user, f"I want to go to {city}", "Is a seat free?") for user, city in USERS.items()]
        print(*await asyncio.gather(*played), sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="openai:gpt-5-mini, local, scripted, ...; default: the first one available")
    name = parser.parse_args().model
    asyncio.run(main(scripted if name == "scripted" else name))
