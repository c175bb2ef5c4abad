"""llama.cpp's own server in a child process, for tests that talk to a real model.

Run as a program it is that child: it serves a model until its input is closed, and prints its address first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager

import pytest

from toolsemble.weights import located

MODEL = "small"
"""The name by which the server knows its model."""

# The model's own template puts calls into tags, which a model of this size forgets. Without them, and with the plain
# request to answer, it calls and answers as larger ones do; everything else is the server's own doing.
TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '# Tools\\n\\nYou may call these functions:\\n<tools>\\n' }}
    {%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}
    {{- '</tools>\\n\\nFor each function call, return a json object with function name and arguments:\\n' }}
    {{- '{"name": <function-name>, "arguments": <args-json-object>}<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.content %}{{- message.content }}{%- endif %}
        {%- for call in message.tool_calls %}
            {{- '{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson + '}' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\nThe function returned: ' + message.content }}
        {{- '\\nAnswer the question in one sentence, without any function.<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def weights_path():
    """Return the file of the smallest model that this machine has; None when it has none."""
    return located("small") or located()


@contextmanager
def llama_server(seconds=120):
    """Serve the small model until the end of the block, and give the server's address; skip where it cannot be.

    The address has no path: OpenAI's API is below ``/v1``, Anthropic's is ``/v1/messages``.
    """
    pytest.importorskip("xllamacpp", reason="needs the package 'xllamacpp': pip install 'toolsemble[local]'")
    weights = weights_path()
    if weights is None:
        pytest.skip("needs a model: run `toolsemble models pull`")
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        command = [sys.executable, __file__, str(weights)]
        with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=log, text=True) as child:
            try:
                yield _address(child, log, seconds)
            finally:
                _end(child)


def _address(child, log, seconds):
    """Return the line that the child prints when it is ready."""
    lines = []
    reader = threading.Thread(target=lambda: lines.append(child.stdout.readline().strip()), daemon=True)
    reader.start()
    reader.join(seconds)
    if not lines or not lines[0]:
        log.seek(0)
        pytest.fail(f"The server did not start within {seconds} s; it said: {log.read()[-2000:]}")
    return lines[0]


def _end(child):
    """Close the child's input, upon which it ends; one that does not is killed."""
    child.stdin.close()
    try:
        child.wait(30)
    except subprocess.TimeoutExpired:
        child.kill()


def _serve(weights):
    import xllamacpp  # only the child needs it

    parameters = xllamacpp.CommonParams()
    parameters.model.path = weights
    parameters.model_alias = {MODEL}
    parameters.chat_template = TEMPLATE
    parameters.n_ctx = 4096
    parameters.n_parallel = 2
    # Several threads wait for each other by turning in circles, which on a busy machine takes ten times as long.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.n_predict = 200  # a small model may not find an end
    parameters.kv_unified = True  # the whole context for any request that needs it
    parameters.sampling.temp = 0.0
    parameters.port = 0
    parameters.ui = False
    parameters.warmup = False
    parameters.verbosity = 0
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)  # noqa: T201 - this is how the test learns of it
    sys.stdin.read()
    os._exit(0)  # the server would first wait for requests without listeners


if __name__ == "__main__":
    _serve(sys.argv[1])
