"""``ProcessTool``: a program as a tool, with JSON on its standard input and output."""

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

from toolsemble.builtin.child import LIMITS, Ended, Program, ended
from toolsemble.definition.definition import ToolDefinition, typed_definition
from toolsemble.errors import ToolDefinitionError, ToolExecutionError
from toolsemble.result import ToolResult
from toolsemble.schema.members import names_around
from toolsemble.schema.typed import TypedArguments
from toolsemble.tools.base import Tool
from toolsemble.tools.settings import BareSettings

MAX_OUTPUT = 1024 * 1024
"""How many bytes of each stream are kept, unless the tool is told otherwise."""

_ANSWER = {"output", "error", "success"}


class ProcessTool(Tool):
    r"""A program as a tool: it gets ``{"input": …}`` on standard input and answers on standard output.

    The answer is ``{"output": …, "success": true, "structured": …}`` or ``{"error": …, "success": false}``; anything
    else is taken as plain text. A program that ends with another exit code than 0 has failed, with what it wrote to
    standard error. When it ends, takes too long or is cancelled, its process group is killed: all that it has started,
    except daemons that have left the group; on Linux, one that is late or cancelled is killed with these as well.

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
        """Take down what is to be run; refuse a command that cannot be one.

        :param name: what the model calls it
        :param description: what it does, for the model to choose by
        :param command: the program and its arguments; no shell reads them, also when they are one text
        :param timeout: after how many seconds it is killed; None for never
        :param input_type: what the model is asked for, such as a dataclass; one text by default
        :param cwd: the directory it works in; the current one by default
        :param env: variables it gets; its environment is otherwise clean: no secrets of this process are in it
        :param inherit_env: names of variables that it gets from this process
        :param max_output: how many bytes of each of its streams are kept
        :param max_memory: how many bytes of memory it may have
        :param max_cpu: how many seconds of processor time it may use
        :param settings: what any tool can say of itself; a reviewer is told the command, and edits the input
        """
        self.name = name
        self.description = description
        self._apply(settings)
        self._timeout = _checked(name, "timeout", timeout)
        self._program = Program(
            _command(name, command),
            _directory(name, cwd),
            _environment(name, env or {}),
            _names(name, inherit_env),
            _checked(name, "max_output", max_output) or 0,
            _limit(name, "max_memory", max_memory),
            _limit(name, "max_cpu", max_cpu),
        )
        self.approval_description = f"{description}\nCommand: {shlex.join(self._program.command)}"
        self._typed: ToolDefinition | None = None
        if input_type is not None:
            names = names_around(sys._getframe(1))  # noqa: SLF001 - there is no public way to a caller's names
            arguments = TypedArguments.of_type(input_type, names)
            arguments.check()
            self._typed = typed_definition(name, description, self.run, arguments)
            self._typed.check_no_init_vars("the program could not be sent it")

    async def run(self, input: Any) -> ToolResult:
        """Run the program once, to its end."""
        value = input if self._typed is None else self._typed.present(input, reveal=True)
        given = json.dumps({"input": value}).encode() + b"\n"
        try:
            return self._answer(await ended(self._program, given, self._timeout))
        except TimeoutError:
            raise ToolExecutionError(f"Process timed out after {self._timeout:g} s") from None
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise ToolExecutionError(f"Cannot start {self._program.command[0]!r}: {reason}") from None

    def _define(self) -> ToolDefinition:
        plain = super()._define()
        if (typed := self._typed) is None:
            return plain
        return replace(plain, decode=typed.decode, accept=typed.accept, schema=typed.schema, present=typed.present)

    def _answer(self, end: Ended) -> ToolResult:
        """Give the result that a program's streams and its exit code mean."""
        answer, errors = _object(end.output), self._text(end.errors)
        if end.code:
            told = errors or _plain(answer.get("error")) or f"Process exited with code {end.code}"
            return ToolResult.failure(told, attributes={"exit_code": end.code})
        attributes = {"stderr": errors} if errors else None
        if not answer and self._cut_object(end.output):
            told = f"The answer is larger than {self._program.max_output} bytes"
            return ToolResult.failure(told, attributes=attributes)
        if not answer:
            return ToolResult.success(self._text(end.output), attributes=attributes)
        if answer.get("success", answer.get("error") in (None, "")) is not True:
            payload = answer.get("structured")
            return ToolResult.failure(_plain(answer.get("error")), structured_output=payload, attributes=attributes)
        output = answer.get("output")
        payload = answer.get("structured", None if isinstance(output, str) else output)
        return ToolResult.success(_plain(output), payload, attributes=attributes)

    def _cut_object(self, output: bytes) -> bool:
        """Whether a JSON object was cut; as plain text, a failure that it told of would become a success."""
        return len(output) > self._program.max_output and output.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{"

    def _text(self, data: bytes) -> str:
        """Give a stream as text, without the end of its last line; say so if it was cut."""
        limit = self._program.max_output
        if len(data) <= limit:
            return data.decode("utf-8-sig", "replace").rstrip()
        # A character that the cut went through is left out.
        kept = codecs.getincrementaldecoder("utf-8-sig")("replace").decode(data[:limit])
        return f"{kept}\n[output truncated at {limit} bytes]"


def _object(output: bytes) -> dict[str, Any]:
    """Give the answer that a program wrote as JSON; empty when it wrote something else."""
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) and answer.keys() & _ANSWER else {}


def _plain(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _command(name: str, command: object) -> tuple[str, ...]:
    try:
        given = shlex.split(command) if isinstance(command, str) else command
        parts = tuple(os.fspath(part) for part in given)  # type: ignore[attr-defined]  # what is no sequence is told
    except (TypeError, ValueError) as problem:
        raise ToolDefinitionError(f"Tool '{name}': command must be a list of texts: {problem}") from None
    if not parts or not parts[0] or any(not isinstance(part, str) or "\0" in part for part in parts):
        raise ToolDefinitionError(f"Tool '{name}': command must be a list of texts, the first a program")
    return parts


def _directory(name: str, cwd: str | os.PathLike[str] | None) -> str | None:
    if cwd is None:
        return None
    if not Path(cwd).is_dir():
        raise ToolDefinitionError(f"Tool '{name}': cwd must be a directory that exists, not {os.fspath(cwd)!r:.200}")
    return str(Path(cwd).resolve())


def _environment(name: str, env: Mapping[Any, Any]) -> dict[str, str]:
    for variable, value in env.items():
        if not isinstance(variable, str) or not isinstance(value, str) or "=" in variable or "\0" in variable + value:
            raise ToolDefinitionError(
                f"Tool '{name}': env must give each variable a text, but {variable!r:.80} has none"
            )
    return dict(env)


def _names(name: str, inherit_env: object) -> tuple[str, ...]:
    given = tuple(inherit_env) if isinstance(inherit_env, Iterable) and not isinstance(inherit_env, str) else (None,)
    if not all(isinstance(each, str) for each in given):
        raise ToolDefinitionError(
            f"Tool '{name}': inherit_env must be a list of names of variables, not {inherit_env!r:.80}"
        )
    return given


def _limit(name: str, setting: str, value: int | None) -> int:
    if value is not None and not LIMITS:
        raise ToolDefinitionError(f"Tool '{name}': {setting} needs a system that can limit processes; leave it out")
    return math.ceil(_checked(name, setting, value) or 0)


def _checked(name: str, setting: str, value: Any) -> Any:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0):
        raise ToolDefinitionError(f"Tool '{name}': {setting} must be a number above 0, not {value!r:.80}")
    return value
