"""A server in plain Python that speaks the handshake version on stdio, and misbehaves as its arguments say."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
FILE = Path(sys.argv[2]) if len(sys.argv) > 2 else None
ANY = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = [
    {"name": "echo", "description": "Says it again", "inputSchema": {**ANY, "required": ["text"]}},
    {
        "name": "note",
        "description": "Writes a line to a file",
        "inputSchema": ANY,
        "annotations": {"readOnlyHint": True, "idempotentHint": True},
    },
]
state = {"asked": 0, "params": {}, "added": []}


def write(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(number, result):
    write({"jsonrpc": "2.0", "id": str(number) if MODE == "text-numbers" else number, "result": result})


def refuse(number, code, message):
    write({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}})


def say(number, text, **more):
    answer(number, {"content": [{"type": "text", "text": text}], **more})


def note(text):
    with FILE.open("a", encoding="utf-8") as file:
        file.write(text + "\n")


def read_message():
    line = sys.stdin.readline()
    if not line:
        if MODE.startswith("ignores"):
            time.sleep(60)
        sys.exit(0)
    return json.loads(line)


def list_tools(number, params):
    tools = TOOLS + state["added"]
    if MODE == "many":
        answer(number, {"tools": [{"name": f"t{index}", "inputSchema": ANY} for index in range(int(sys.argv[2]))]})
    elif MODE == "endless":
        page = int(params.get("cursor") or 0)
        answer(number, {"tools": [{"name": f"t{page}", "inputSchema": ANY}], "nextCursor": str(page + 1)})
    elif MODE == "pages":
        page = int(params.get("cursor") or 0)
        more = {"nextCursor": "1"} if page == 0 else {}
        answer(number, {"tools": [{"name": f"t{page}", "inputSchema": ANY}], **more})
    elif MODE == "json":
        answer(number, {"tools": json.loads(FILE.read_text(encoding="utf-8"))})
    elif MODE == "dies-in-list":
        sys.exit(3)
    elif MODE == "list-error":
        refuse(number, -32603, "no list today")
    elif MODE == "early-change":
        write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        answer(number, {"tools": tools})
    elif MODE == "odd-list":
        answer(number, {"tools": 5})
    else:
        answer(number, {"tools": tools})


def call_echo(number, text):
    say(number, text)


def call_note(number, text):
    note(text)
    say(number, "written")


def call_die(number, text):
    note(text)
    os._exit(1)


def call_die_once(number, text):
    note(text)
    if len(FILE.read_text().splitlines()) == 1:
        os._exit(1)
    say(number, "second time")


def call_garbage(number, text):
    sys.stdout.write("hello\n\n{]\n[1, 2]\n" + '{"jsonrpc": "2.0", "id": null, "result": {}}\n' * 30)
    say(number, "after garbage")


def call_half_line(number, text):
    sys.stdout.write('{"jsonrpc": "2.0", "id":')
    sys.stdout.flush()
    os._exit(0)


def call_bad_utf8(number, text):
    data = json.dumps({"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": "a@b"}]}})
    sys.stdout.buffer.write(data.encode().replace(b"@", b"\xff") + b"\n")
    sys.stdout.flush()


def call_huge(number, text):
    try:
        while True:
            sys.stdout.write("x" * 65536)
    except BrokenPipeError:
        os._exit(0)


def call_gigabyte(number, text):
    try:
        for _ in range(2**14):
            sys.stdout.write("x" * 65536)
    except BrokenPipeError:
        os._exit(0)
    say(number, "it was read")


def call_no_content(number, text):
    answer(number, {"isError": False, "content": "text"})


def call_odd_content(number, text):
    answer(number, {"content": [{"type": "hologram", "data": "x"}]})


def call_number(number, text):
    answer(number, 5)


def call_hang(number, text):
    note("hangs")
    while (message := read_message()).get("method") != "notifications/cancelled":
        pass
    note(f"cancelled {message['params']['requestId'] == number}")


def call_flood(number, text):
    sys.stderr.write("noise " * 2_000_000 + "\n" + "line\n" * 100_000)
    say(number, "after the flood")


def call_child(number, text):
    say(number, str(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid))


def call_capabilities(number, text):
    say(number, json.dumps(sorted(state["params"]["capabilities"])))


def call_pid(number, text):
    say(number, str(os.getpid()))


def call_environment(number, text):
    say(number, json.dumps(sorted(os.environ)))


def call_bad_base64(number, text):
    answer(number, {"content": [{"type": "image", "data": "not base64!", "mimeType": "image/png"}]})


def call_error(number, text):
    say(number, text, isError=True)


def call_refused(number, text):
    refuse(number, -32602, "text must be shorter")


def call_internal(number, text):
    refuse(number, -32603, "boom")


def call_unknown_answers(number, text):
    say(9999, "not asked for")
    write({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 77, "progress": 1}})
    say(number, "known")
    say(number, "twice")


def call_odd_text(number, text):
    sys.stdout.write(text.replace("NUMBER", str(number)) + "\n")
    sys.stdout.flush()


def call_meta(number, text):
    say(number, json.dumps(state["meta"]))


def call_change(number, text):
    state["added"].append({"name": text, "inputSchema": ANY})
    write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    say(number, "changed")


def call_slow_progress(number, text):
    for step in range(500):
        params = {"progressToken": state["token"], "progress": step, "message": f"step {step}"}
        write({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    say(number, "done")


def call_roots(number, text):
    write({"jsonrpc": "2.0", "id": "r1", "method": "roots/list"})
    while (message := read_message()).get("id") != "r1":
        pass
    say(number, json.dumps(message.get("result") or message.get("error")))


def call_odd_form(number, text):
    form = {"type": "object", "properties": json.loads(text)}
    params = {"message": "?", "requestedSchema": form}
    write({"jsonrpc": "2.0", "id": "q2", "method": "elicitation/create", "params": params})
    while (message := read_message()).get("id") != "q2":
        pass
    say(number, json.dumps(message.get("result") or message.get("error")))


def call_form(number, text):
    params = {"message": "?", "requestedSchema": json.loads(text)}
    write({"jsonrpc": "2.0", "id": "q3", "method": "elicitation/create", "params": params})
    while (message := read_message()).get("id") != "q3":
        pass
    say(number, json.dumps(message.get("result") or message.get("error")))


def call_ask_in_turn(number, text):
    answers = []
    params = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    for index in range(int(text)):
        write({"jsonrpc": "2.0", "id": f"q{index}", "method": "elicitation/create", "params": params})
        while (message := read_message()).get("id") != f"q{index}":
            pass
        answers.append(message["result"]["action"])
    say(number, json.dumps(answers))


def call_new_list(number, text):
    state["added"] = [{"name": f"{text}_{index}", "inputSchema": ANY} for index in range(50)]
    write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    say(number, "changed")


def call_ask_together(number, text):
    while (message := read_message()).get("method") != "tools/call":
        pass
    ask(number)
    say(message["id"], "second")


def call_ask_often(number, text):
    params = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    for index in range(30):
        write({"jsonrpc": "2.0", "id": f"q{index}", "method": "elicitation/create", "params": params})
    answers = [read_message()["result"]["action"] for _ in range(30)]
    say(number, json.dumps(answers))


def call_change_much(number, text):
    state["added"] += [{"name": f"t{index}", "inputSchema": ANY} for index in range(100)]
    write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    say(number, "changed")


def call_close_input(number, text):
    os.close(0)
    say(number, "closed")
    time.sleep(60)


def call_stop_reading(number, text):
    say(number, "stopped")
    select.select([0], [], [])  # it ends as soon as there is something to read
    os._exit(0)


def call_ask(number, text):
    ask(number)


def call(number, name, arguments):
    globals()[f"call_{name}"](number, arguments.get("text", ""))


def ask(number):
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "title": "City"}, "days": {"type": "integer", "default": 3}},
        "required": ["city"],
    }
    params = {"message": "Which city?", "requestedSchema": schema}
    write({"jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": params})
    while (message := read_message()).get("id") != "q1":
        pass
    say(number, json.dumps(message.get("result") or message.get("error")))


def start():
    """Do what a mode does before the first message."""
    if MODE == "ignores-all":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    names = [name.removeprefix("call_") for name in globals() if name.startswith("call_")]
    TOOLS.extend({"name": name, "inputSchema": ANY} for name in names if name not in {"echo", "note"})
    if FILE is not None and MODE.startswith("counted"):
        note("started")
    if MODE in {"hangs", "counted-hangs"}:
        time.sleep(60)
    if MODE == "floods":
        sys.stderr.write("noise " * 2_000_000 + "\n" + "line\n" * 100_000)
    if MODE == "chatters":
        sys.stdout.write("starting up\n{]\n" * 1000)
    if MODE == "exits":
        sys.stderr.write("no license key\n")
        sys.exit(2)
    if MODE == "counted-twice" and len(FILE.read_text().splitlines()) > 1:
        sys.exit(2)


def main():
    start()
    while True:
        message = read_message()
        method, params, number = message.get("method"), message.get("params") or {}, message.get("id")
        if method == "initialize":
            state["params"] = params
            info = {"name": "plain", "version": "7"}
            capabilities = {} if MODE == "no-tools" else {"tools": {"listChanged": True}}
            if MODE == "prompts":
                capabilities["prompts"] = {}
            version = "2099-01-01" if MODE == "odd-version" else "2025-11-25"
            more = {"instructions": "Be kind."}
            answer(number, {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info, **more})
        elif method == "tools/list":
            list_tools(number, params)
        elif method == "tools/call":
            state["meta"] = params.get("_meta", {})
            state["token"] = state["meta"].get("progressToken")
            call(number, params["name"], params.get("arguments") or {})
        elif number is not None and method is not None:
            refuse(number, -32601, "Method not found")


main()
