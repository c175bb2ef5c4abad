"""Answers as OpenAI's API and servers like it send them, for :mod:`web`."""

from __future__ import annotations

import json

from toolsemble.models import Assembly, OpenAIModel

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
PATHS = {"chat": CHAT, "responses": RESPONSES}
KEY = "sk-a-very-secret-key"


def model_at(web, api="chat", **settings):
    """Return a model behind a server of a test's."""
    return OpenAIModel("gpt-test", **{"api": api, "base_url": web.url("/v1"), "api_key": KEY, **settings})


def sent(web, place=-1):
    """Return the body of a request that a server was sent."""
    return json.loads(web.requests[place][3])


def header(web, name, place=-1):
    """Return a header of a request that a server was sent."""
    return {key.lower(): value for key, value in web.requests[place][2].items()}.get(name)


def whole(body, status=200, headers=()):
    """Return an answer of one JSON value."""
    return status, {"Content-Type": "application/json", **dict(headers)}, json.dumps(body)


def in_turn(*answers):
    """Return an answer that is another one each time, the last one for ever."""
    left = list(answers)

    def answer(handler):
        found = left.pop(0) if len(left) > 1 else left[0]
        found(handler) if callable(found) else handler.send(*found)

    return answer


def streamed(*events, done=True, cut=False):
    """Return an answer of server-sent events: dicts, or lines; with ``cut`` the connection breaks at the end."""

    def answer(handler):
        begin(handler)
        for event in events:
            say(handler, event)
        if done and not cut:
            chunk(handler, b"data: [DONE]\n\n")
        if not cut:
            chunk(handler, b"")

    return answer


def begin(handler):
    """Send the head of a stream."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()


def say(handler, event):
    """Send one event of a stream."""
    if isinstance(event, str):
        chunk(handler, event.encode())
    else:
        kind = f"event: {event['type']}\n" if "type" in event else ""
        chunk(handler, f"{kind}data: {json.dumps(event)}\n\n".encode())


def chunk(handler, data):
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
    handler.wfile.flush()


# --- chat completions


def completion(message, reason="stop", usage=(9, 2, 4), **more):
    """Return a whole chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    return {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], **counted(usage), **more}


def counted(usage):
    if usage is None:
        return {}
    into, out, cached = usage
    return {
        "usage": {
            "prompt_tokens": into,
            "completion_tokens": out,
            "total_tokens": into + out,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": 1},
        }
    }


def delta(reason=None, **said):
    """Return a piece of a chat completion."""
    choice = {"index": 0, "delta": said, "finish_reason": reason}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]}


def tokens(usage=(9, 2, 4)):
    """Return the last piece of a chat completion, with the number of tokens."""
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], **counted(usage)}


def called(index=None, id=None, name=None, arguments=None, **more):
    """Return a piece of a call."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fields = {"index": index, "id": id, "type": "function", "function": function, **more}
    return {key: value for key, value in fields.items() if value is not None}


# --- responses


def response(*output, status="completed", usage=(9, 2, 4), **more):
    """Return a whole response."""
    into, out, cached = usage
    tokens = {
        "input_tokens": into,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": out,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": into + out,
    }
    fields = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-test", "status": status}
    return {**fields, "output": list(output), "usage": tokens, "error": None, **more}


def text_item(text, **more):
    """Return an item of a response that says something."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part], **more}


def call_item(id, name, arguments, **more):
    """Return an item of a response that calls a tool."""
    fields = {"id": f"fc_{id}", "type": "function_call", "status": "completed"}
    return {**fields, "call_id": id, "name": name, "arguments": arguments, **more}


def thought_item(content="gAAAA"):
    """Return an item of a response that is the model's own."""
    hidden = {"encrypted_content": content} if content else {}
    return {"id": "rs_1", "type": "reasoning", "summary": [], **hidden}


def events_of(whole):
    """Return the events in which a response comes."""
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events = [{"type": "response.created", "response": begun}]
    for place, item in enumerate(whole["output"]):
        empty = {**item, **{name: [] for name in ("content",) if name in item}}
        empty.update({"arguments": ""} if "arguments" in item else {})
        events += [{"type": "response.output_item.added", "output_index": place, "item": empty}]
        events += [{**event, "output_index": place, "item_id": item["id"]} for event in _inner_events(item)]
        events += [{"type": "response.output_item.done", "output_index": place, "item": item}]
    events += [{"type": f"response.{whole['status']}", "response": whole}]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _inner_events(item):
    if item["type"] == "function_call":
        return [
            {"type": "response.function_call_arguments.delta", "delta": piece} for piece in halves(item["arguments"])
        ]
    kinds = {"output_text": "response.output_text.delta", "refusal": "response.refusal.delta"}
    return [
        {"type": kinds[part["type"]], "content_index": 0, "delta": piece, "logprobs": []}
        for part in item.get("content", ())
        for piece in halves(part.get("text", part.get("refusal")))
    ]


def halves(text):
    """Return a text in two pieces."""
    return [text[: len(text) // 2], text[len(text) // 2 :]]


# --- reading


async def chunks(model, request):
    """Return every piece of a streamed reply."""
    return [chunk async for chunk in model.stream(request)]


async def put_together(model, request):
    """Return a streamed reply as a whole."""
    assembly = Assembly()
    for each in await chunks(model, request):
        assembly.add(each)
    return assembly.reply()
