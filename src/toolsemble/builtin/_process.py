"""``ProcessTool``: a tool that runs a program, with JSON on its standard input and output."""

from __future__ import annotations

import codecs
import json
import math
import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from toolsemble._engine.definition import ToolDefinition, typed_definition
from toolsemble._schema.docstring import collect_local_types
from toolsemble._schema.typed_arguments import TypedArguments
from toolsemble._tools.base import Tool
from toolsemble._tools.settings import BareSettings
from toolsemble._vocabulary.errors import ToolDefinitionError, ToolExecutionError, ToolTimeoutError
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.builtin._child_process import LIMITS, Outcome, Program, run_program

MAX_OUTPUT = 1024 * 1024
"""The default number of bytes kept of each output stream."""

_ANSWER_KEYS = {"output", "error", "success"}


class ProcessTool(Tool):
    r"""A tool that runs a program, which reads ``{"input": …}`` from standard input and answers on standard output.

    The answer is ``{"output": …, "success": true, "structured": …}`` or ``{"error": …, "success": false}``; anything
    else is plain text. A nonzero exit code is a failure, with standard error as its message. When the program exits,
    times out or is cancelled, its process group is killed: all its descendants except daemons that have left the
    group; on Linux, a timeout or cancellation kills these as well.

    >>> import sys
    >>> program = "import json, sys; print(json.load(sys.stdin)['input'].upper())"
    >>> shout = ProcessTool("shout", "Says it louder", [sys.executable, "-c", program])
    >>> shout.execute("hello").output
    'HELLO'
    """

    def __init__(  # noqa: PLR0913 - settings by keyword, each with a default
        self,
        name: str,
        description: str,
        command: str | Sequence[str | os.PathLike[str]],
        *,
        timeout: float | None = 30,
        input_type: type | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        inherit_env: Iterable[str] = (),
        max_output: int = MAX_OUTPUT,
        max_memory: int | None = None,
        max_cpu: int | None = None,
        **settings: Unpack[BareSettings],
    ) -> None:
        """Check the command and its settings.

        :param name: the name of the tool
        :param description: what the tool does, for the model
        :param command: the program and its arguments, as a list or one str; they are not passed to a shell
        :param timeout: seconds until it is killed; None: no limit
        :param input_type: the type of the arguments, such as a dataclass; the default is one str
        :param cwd: the working directory; the default is the current one
        :param env: environment variables; this process's variables are not inherited, because they may be secret
        :param inherit_env: names of variables that it inherits from this process
        :param max_output: the number of bytes kept of each of its output streams
        :param max_memory: the memory limit in bytes
        :param max_cpu: the limit of processor time in seconds
        :param settings: the settings of any tool; a reviewer sees the command, and edits the input
        """
        self.name = name
        self.description = description
        self._apply(settings)
        self._timeout = _check_positive(name, "timeout", timeout)
        self._program = Program(
            _parse_command(name, command),
            _check_directory(name, cwd),
            _check_environment(name, env or {}),
            _check_names(name, inherit_env),
            _check_positive(name, "max_output", max_output) or 0,
            _check_limit(name, "max_memory", max_memory),
            _check_limit(name, "max_cpu", max_cpu),
        )
        self.approval_description = f"{description}\nCommand: {shlex.join(self._program.command)}"
        self._typed: ToolDefinition | None = None
        if input_type is not None:
            names = collect_local_types(sys._getframe(1))  # noqa: SLF001 - no public API gives a caller's names
            arguments = TypedArguments.of_type(input_type, names)
            arguments.check()
            self._typed = typed_definition(name, description, self.run, arguments)
            self._typed.check_no_init_vars("it cannot be sent to the program")

    async def run(self, input: Any) -> ToolResult:
        """Run the program until it exits."""
        value = input if self._typed is None else self._typed.present(input, reveal=True)
        data = json.dumps({"input": value}).encode() + b"\n"
        try:
            return self._to_result(await run_program(self._program, data, self._timeout))
        except TimeoutError:
            raise ToolTimeoutError(f"Process timed out after {self._timeout:g} s") from None
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise ToolExecutionError(f"Cannot start {self._program.command[0]!r}: {reason}") from None

    def _define(self) -> ToolDefinition:
        plain = super()._define()
        if (typed := self._typed) is None:
            return plain
        return replace(plain, decode=typed.decode, accept=typed.accept, schema=typed.schema, present=typed.present)

    def _to_result(self, outcome: Outcome) -> ToolResult:
        """Return the result for a program's streams and exit code."""
        answer, errors = _parse_answer(outcome.output), self._decode(outcome.errors)
        if outcome.code:
            message = errors or _to_text(answer.get("error")) or f"Process exited with code {outcome.code}"
            return ToolResult.failure(message, attributes={"exit_code": outcome.code})
        attributes = {"stderr": errors} if errors else None
        if not answer and self._is_truncated_object(outcome.output):
            message = f"The answer is larger than {self._program.max_output} bytes"
            return ToolResult.failure(message, attributes=attributes)
        if not answer:
            return ToolResult.success(self._decode(outcome.output), attributes=attributes)
        if answer.get("success", answer.get("error") in (None, "")) is not True:
            payload = answer.get("structured")
            return ToolResult.failure(_to_text(answer.get("error")), structured_output=payload, attributes=attributes)
        output = answer.get("output")
        payload = answer.get("structured", None if isinstance(output, str) else output)
        return ToolResult.success(_to_text(output), payload, attributes=attributes)

    def _is_truncated_object(self, output: bytes) -> bool:
        """Return whether a JSON object was truncated; as plain text, a failure in it would become a success."""
        return len(output) > self._program.max_output and output.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{"

    def _decode(self, data: bytes) -> str:
        """Return a stream as text, without trailing whitespace, or with a note if it was truncated."""
        limit = self._program.max_output
        if len(data) <= limit:
            return data.decode("utf-8-sig", "replace").rstrip()
        # The incremental decoder drops an incomplete last character.
        kept = codecs.getincrementaldecoder("utf-8-sig")("replace").decode(data[:limit])
        return f"{kept}\n[output truncated at {limit} bytes]"


def _parse_answer(output: bytes) -> dict[str, Any]:
    """Return a program's JSON answer; empty if its output is not JSON."""
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) and answer.keys() & _ANSWER_KEYS else {}


def _to_text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return compact_json(value)


def _parse_command(name: str, command: object) -> tuple[str, ...]:
    try:
        given = shlex.split(command) if isinstance(command, str) else command
        parts = tuple(os.fspath(part) for part in given)  # type: ignore[attr-defined]  # a TypeError is reported
    except (TypeError, ValueError) as problem:
        raise ToolDefinitionError(f"Tool '{name}': command must be a list of str: {problem}") from None
    if not parts or not parts[0] or any(not isinstance(part, str) or "\0" in part for part in parts):
        raise ToolDefinitionError(f"Tool '{name}': command must be a list of str, the first a program")
    return parts


def _check_directory(name: str, cwd: str | os.PathLike[str] | None) -> str | None:
    if cwd is None:
        return None
    if not Path(cwd).is_dir():
        raise ToolDefinitionError(f"Tool '{name}': cwd must be a directory that exists, not {os.fspath(cwd)!r:.200}")
    return str(Path(cwd).resolve())


def _check_environment(name: str, env: Mapping[Any, Any]) -> dict[str, str]:
    for variable, value in env.items():
        if not isinstance(variable, str) or not isinstance(value, str) or "=" in variable or "\0" in variable + value:
            raise ToolDefinitionError(f"Tool '{name}': env must map names to str values, but {variable!r:.80} does not")
    return dict(env)


def _check_names(name: str, inherit_env: object) -> tuple[str, ...]:
    names = tuple(inherit_env) if isinstance(inherit_env, Iterable) and not isinstance(inherit_env, str) else (None,)
    if not all(isinstance(each, str) for each in names):
        raise ToolDefinitionError(
            f"Tool '{name}': inherit_env must be a list of variable names, not {inherit_env!r:.80}"
        )
    return names


def _check_limit(name: str, setting: str, value: int | None) -> int:
    if value is not None and not LIMITS:
        raise ToolDefinitionError(f"Tool '{name}': {setting} is not supported on this system; leave it out")
    return math.ceil(_check_positive(name, setting, value) or 0)


def _check_positive(name: str, setting: str, value: Any) -> Any:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0):
        raise ToolDefinitionError(f"Tool '{name}': {setting} must be a number > 0, not {value!r:.80}")
    return value
