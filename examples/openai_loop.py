"""Add a toolbox to a loop you already have, written with the OpenAI SDK: three lines are new.

``python examples/openai_loop.py --model gpt-5-mini`` calls OpenAI, or the server at OPENAI_BASE_URL.
"""

import argparse
from typing import Any, Literal

import httpx2
from openai import DefaultHttpxClient, OpenAI

from toolsemble import Toolbox, ToolCall, tool
from toolsemble.builtin import CalculatorTool

CALLS = {"price": '{"item": "tea"}', "calculator": '{"input": "12 * 4.80"}'}
SCRIPT: list[dict[str, Any]] = [
    {"tool_calls": [{"id": name, "type": "function", "function": {"name": name, "arguments": arguments}}]}
    for name, arguments in CALLS.items()
] + [{"content": "12 boxes cost 57.60 euros."}]


@tool(effects="read")
def price(item: Literal["tea", "milk"]) -> float:
    """Return the price of an item, in euros."""
    return {"tea": 4.80, "milk": 1.10}[item]


def scripted(_: httpx2.Request) -> httpx2.Response:
    """Return the next reply of the script instead of calling OpenAI."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": None} | SCRIPT.pop(0)}
    return httpx2.Response(200, json={"id": "1", "object": "chat.completion", "created": 1, "choices": [choice]})


def answer(client: OpenAI, model: str, box: Toolbox, question: str) -> str:
    """Call the model until it requests no more tools."""
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        tools: list[Any] = box.to_openai()  # 1: offer the tools
        message = client.chat.completions.create(model=model, messages=messages, tools=tools).choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.content or ""
        replies = box.execute_all([ToolCall.from_openai(call) for call in message.tool_calls])  # 2
        messages += [reply.to_openai() for reply in replies]  # 3: send the results


def main(model: str) -> None:
    """Answer a question that needs two tools, one after the other."""
    offline = OpenAI(api_key="none", http_client=DefaultHttpxClient(transport=httpx2.MockTransport(scripted)))
    with offline if model == "scripted" else OpenAI() as client:
        print(answer(client, model, Toolbox([price, CalculatorTool()]), "What do 12 boxes of tea cost?"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="gpt-5-mini", help="a model of OpenAI or of OPENAI_BASE_URL, or scripted")
    main(parser.parse_args().model)
