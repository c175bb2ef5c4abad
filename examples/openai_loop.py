"""A loop that you have already, written with OpenAI's own SDK, and a toolbox in it: three lines are toolsemble's.

``python examples/openai_loop.py --model gpt-5-mini`` asks OpenAI, or the server that OPENAI_BASE_URL names.
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
    """Tell the price of an item, in euros."""
    return {"tea": 4.80, "milk": 1.10}[item]


def scripted(_: httpx2.Request) -> httpx2.Response:
    """Answer in OpenAI's place, line by line of the script."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": None} | SCRIPT.pop(0)}
    return httpx2.Response(200, json={"id": "1", "object": "chat.completion", "created": 1, "choices": [choice]})


def answer(client: OpenAI, model: str, box: Toolbox, question: str) -> str:
    """Ask the model until it calls no more tools."""
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        tools: list[Any] = box.to_openai()  # 1
        message = client.chat.completions.create(model=model, messages=messages, tools=tools).choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.content or ""
        replies = box.execute_all([ToolCall.from_openai(call) for call in message.tool_calls])  # 2
        messages += [reply.to_openai() for reply in replies]  # 3


def main(model: str) -> None:
    """Answer a question that takes two tools, one after the other."""
    offline = OpenAI(api_key="none", http_client=DefaultHttpxClient(transport=httpx2.MockTransport(scripted)))
    with offline if model == "scripted" else OpenAI() as client:
        print(answer(client, model, Toolbox([price, CalculatorTool()]), "What do 12 boxes of tea cost?"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="gpt-5-mini", help="a model of OpenAI or of OPENAI_BASE_URL, or scripted")
    main(parser.parse_args().model)
