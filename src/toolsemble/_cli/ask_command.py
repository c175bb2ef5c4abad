"""The commands ``ask`` and ``chat``: their model, their attachments, and the conversation."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, closing, contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from toolsemble._cli.json_output import JsonOutput
from toolsemble._cli.options import Exit, exit_code_for, format_error
from toolsemble._cli.screen import Screen, make_reviewer, redirect_prints
from toolsemble._cli.targets import load_deps, load_object, load_toolbox, split_targets
from toolsemble._cli.text_output import Listener, TextOutput
from toolsemble._engine.context import ToolContext
from toolsemble._runtime.text import describe_error, escape_line
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import RunError, RunParkedError, ToolConfigurationError
from toolsemble._vocabulary.media_url import guess_media_type
from toolsemble._vocabulary.result import AudioContent, FileContent, ImageContent, Media
from toolsemble.agent._agent import Agent
from toolsemble.agent._event import Final, RunParked
from toolsemble.agent._memory import ConversationMemory
from toolsemble.agent._result import AgentResult
from toolsemble.models._chat import ChatModel
from toolsemble.models._message import AssistantMessage, Prompt, SystemMessage, Transcript
from toolsemble.models._registry import find_module, model_of

MEMORY_ID = ToolContext.memory_id
"""The memory id of command-line conversations."""

NO_SETTINGS: Mapping[str, Any] = MappingProxyType({"memory_id": MEMORY_ID})
"""The default settings of a run."""

_TICK_SECONDS = 0.1
_SUCCESS = {"answer", "immediate"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a question.

    >>> Outcome(Exit.DONE).unfinished
    ''
    """

    code: Exit
    partial: AgentResult | None = None
    """The partial result of an interrupted run; None if it was not interrupted."""
    unfinished: str = ""
    """The text of an interrupted model reply, which is not in the messages of ``partial``."""


def run_agent(agent: Agent, question: Prompt, listener: Listener, settings: Mapping[str, Any] = NO_SETTINGS) -> Outcome:
    """Run an agent and send its events to a listener; Ctrl-C ends the run, not the program; errors are raised.

    :param settings: the run's settings
    """
    run = _Run(agent, question, listener, settings)
    try:
        # With a factory, the runner does not change the thread's event loop policy.
        with redirect_prints(), asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            result = runner.run(run.run())
    except KeyboardInterrupt:
        return Outcome(Exit.INTERRUPTED, run.partial, listener.end(None, run.partial or AgentResult()))
    except BaseException as error:
        listener.end(error, getattr(error, "partial", None) or AgentResult())
        raise
    return Outcome(Exit.DONE if result.stop_reason in _SUCCESS else Exit.STOPPED)


def save_interrupted(memory: ConversationMemory, outcome: Outcome, memory_id: str = MEMORY_ID) -> None:
    """Add an interrupted answer to the conversation, so that the next question can refer to it."""
    if outcome.partial is None:
        return
    kept = len(memory.load(memory_id))
    messages = [each for each in outcome.partial.messages if not isinstance(each, SystemMessage)]
    after = Transcript([*messages, AssistantMessage(f"{outcome.unfinished} (interrupted)".lstrip())])
    memory.extend(memory_id, None, after, len(after) - kept)


class _Run:
    """A run whose events go to a listener."""

    def __init__(self, agent: Agent, question: Prompt, listener: Listener, settings: Mapping[str, Any]) -> None:
        self._agent = agent
        self._settings = settings
        self._question = question
        self._listener = listener
        self.partial: AgentResult | None = None

    async def run(self) -> AgentResult:
        """Run to the end and return the result."""
        clock = asyncio.create_task(self._tick_regularly())
        event: Any = None
        try:
            async with aclosing(self._agent.stream(self._question, **self._settings)) as events:
                async for event in events:
                    self._listener.take(event)
        except asyncio.CancelledError as error:
            self.partial = getattr(error, "partial", None)
            raise
        finally:
            clock.cancel()
            with suppress(asyncio.CancelledError):
                await clock
        if isinstance(event, RunParked):
            raise RunParkedError(f"Run '{event.run_id}' waits for approval", run_id=event.run_id)
        if not isinstance(event, Final):
            raise RunError(f"Run '{event.run_id}' was {event.kind}", run_id=event.run_id)
        result: AgentResult = event.result
        return result

    async def _tick_regularly(self) -> None:
        while True:
            self._listener.tick()
            await asyncio.sleep(_TICK_SECONDS)


MAX_BYTES = 100_000_000
"""The maximum file size in bytes; no provider accepts more."""

_SIGNATURES = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
)
_RIFF_TYPES = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}


def read_attachments(sources: Sequence[str]) -> list[Media]:
    """Return the contents of files and URLs; raise ``ToolConfigurationError`` if one cannot be used."""
    return [_read_url(each) if "://" in each else _read_file(Path(each).expanduser()) for each in sources]


def _read_url(url: str) -> Media:
    try:
        kind = guess_media_type(url) or ""
        if kind.startswith("image/"):
            return ImageContent.from_url(url)
        return AudioContent.from_url(url) if kind.startswith("audio/") else FileContent.from_url(url)
    except ValueError as problem:
        raise ToolConfigurationError(f"--file: {problem}") from None


def _read_file(path: Path) -> Media:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise ToolConfigurationError(f"--file: '{path}' cannot be read: {problem.strerror}") from None
    if not data:
        raise ToolConfigurationError(f"--file: '{path}' is empty")
    if len(data) > MAX_BYTES:
        raise ToolConfigurationError(f"--file: '{path}' has more than {MAX_BYTES // 1_000_000} MB; pass a part of it")
    kind = _find_type(path, data)
    if kind.startswith("image/"):
        return ImageContent(data, kind)
    return AudioContent(data, kind) if kind.startswith("audio/") else FileContent(data, kind, path.name)


def _find_type(path: Path, data: bytes) -> str:
    """Return the media type: by the first bytes, else by the extension, else plain text."""
    found = next((kind for start, kind in _SIGNATURES if data.startswith(start)), None)
    if data.startswith(b"RIFF"):
        found = _RIFF_TYPES.get(data[8:12])
    kind = found or guess_media_type(path.name)
    if kind is None and _is_text(data):
        return "text/plain"
    if kind is None:
        raise ToolConfigurationError(
            f"--file: the type of '{path}' is unknown; give it an extension, such as .pdf, .png, .wav or .txt"
        )
    return kind


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def find_agent(name: str | None) -> Agent | None:
    """Return the agent in a module or file; None if the name is not an agent's.

    >>> find_agent("openai:gpt-5-mini") is None
    True
    """
    thing = load_object(name) if name is not None and _is_object_path(name) else None
    return thing if isinstance(thing, Agent) else None


def find_model(name: str | None, screen: Screen) -> ChatModel:
    """Return the model of a name, module or file; default: the first available one.

    Naming a module or a file runs its code.
    """
    thing: Any = load_object(name) if name is not None and _is_object_path(name) else None
    if isinstance(thing, ModuleType):
        place = f"{name}:NAME" if f"{name}".endswith(".py") else f"{name}.NAME"
        raise ToolConfigurationError(f"{name!r} is a module, not a model: write {place} for a model in it")
    if thing is not None:
        return model_of(thing)
    with screen.show_log("toolsemble.models", style="dim"):  # the chosen model, and the reason
        return model_of(name)


def _is_object_path(name: str) -> bool:
    """Return whether a name is ``module:attribute`` or ``path/to/file.py:attribute``, not a provider's model."""
    first, _, rest = name.partition(":")
    return (bool(rest) or first.endswith(".py")) and find_module(first) is None


_PROMPT = "> "
_COMMANDS = {
    "/help": "list the commands",
    "/tools": "list the model's tools",
    "/new": "forget this conversation and start another",
    "/quit": "exit; so does end of input (Ctrl-D)",
}


class Chat:
    """A conversation: reads lines and answers each, with the previous ones as context."""

    def __init__(
        self,
        agent: Agent,
        box: Toolbox,
        memory: ConversationMemory,
        screen: Screen,
        listener: Callable[[], Listener],
        deps: Any = None,
    ) -> None:
        self._settings = {"memory_id": MEMORY_ID, "deps": deps}
        self._agent = agent
        self._box = box
        self._memory = memory
        self._screen = screen
        self._listener = listener
        self._code = Exit.DONE
        self._at_terminal = sys.stdin.isatty() and screen.out.is_terminal

    def run(self) -> Exit:
        """Run until the user exits or the input ends, and return the exit code.

        In a terminal the exit code is 0; otherwise it is the last failed answer's code.
        """
        if self._at_terminal:
            with suppress(ImportError):  # not available on every system
                import_module("readline")
            self._screen.report(self._screen.err.paint("dim", "/help lists the commands; Ctrl-C stops an answer."))
        while (line := self._read_line()) is not None:
            if line.startswith("/") and not line.startswith("//"):
                if not self._run_command(line):
                    break
            elif line:
                self._answer(line.removeprefix("/") if line.startswith("//") else line)
                if self._code is Exit.INTERRUPTED and not self._at_terminal:
                    break
        return Exit.DONE if self._at_terminal else self._code

    def _read_line(self) -> str | None:
        """Return the next line; None at the end of the input."""
        if not self._at_terminal:
            return line.strip() if (line := sys.stdin.readline()) else None
        try:
            return input(_PROMPT).strip()
        except EOFError:
            self._screen.write("")
            return None
        except KeyboardInterrupt:
            self._screen.write("")
            return ""

    def _run_command(self, line: str) -> bool:
        """Run a command, and return False if it is ``/quit``."""
        command, _, _ = line.partition(" ")
        if command == "/help":
            for name, help_text in _COMMANDS.items():
                self._screen.report(f"{name:8}{help_text}")
            self._screen.report("//text  send a text that begins with a slash")
        elif command == "/tools":
            self._screen.report("\n".join(map(escape_line, self._box.names)) or "none; name some with --tools")
        elif command == "/new":
            self._memory.clear(MEMORY_ID)
            self._screen.report("New conversation.")
        elif command != "/quit":
            near = get_close_matches(command, _COMMANDS, n=1) or ["/help"]
            self._screen.report(f"There is no command {escape_line(command, 40)}; did you mean {near[0]}?")
        return command != "/quit"

    def _answer(self, text: str) -> None:
        try:
            outcome = run_agent(self._agent, text, self._listener(), self._settings)
        except BrokenPipeError:
            raise  # the output is closed
        except Exception as error:  # an error in one answer must not end the chat
            self._code = exit_code_for(error)
            self._screen.report(self._screen.err.paint("bad", escape_line(format_error(error))))
            return
        save_interrupted(self._memory, outcome)
        if outcome.code is not Exit.DONE:
            self._code = outcome.code


_MAX_CALLS = 25


@dataclass(frozen=True, slots=True)
class Setup:
    """The options of ``ask`` and ``chat``.

    >>> Setup(tools=["calculator,datetime"]).approve
    'ask'
    """

    model: str | None = None
    """The name of the model; None: the first that is available."""
    tools: Sequence[str] = ()
    """The tool targets."""
    approve: str = "ask"
    """The value of ``--approve``."""
    max_calls: int | None = None
    """The maximum number of tool calls per answer; None: 25."""
    max_tokens: int | None = None
    """The maximum number of tokens per answer; None: no limit."""
    max_seconds: float | None = None
    """The maximum number of seconds per answer; None: no limit."""
    memory: str | None = None
    """The conversation file; None: not saved."""
    system: str | None = None
    """The instructions for the model; None: none."""
    system_file: str | None = None
    """The file with additional instructions; None: none."""
    as_json: bool = False
    """Whether events are written as JSON Lines."""
    quiet: bool = False
    """Whether only the answer is written."""
    deps: str | None = None
    """The target of the tools' deps; None: no deps."""
    memory_id: str | None = None
    """The id of the conversation or user; None: the agent's, or this program's."""

    def make_listener(self, screen: Screen, *, markdown: bool = False) -> Listener:
        """Return the listener that writes a run's events."""
        return JsonOutput(screen) if self.as_json else TextOutput(screen, quiet=self.quiet, markdown=markdown)

    def toolbox(self) -> Toolbox:
        """Return the toolbox."""
        return load_toolbox(split_targets(self.tools))

    def instructions(self) -> list[str]:
        """Return the instructions for the model; raise if the file cannot be read."""
        own = [] if self.system is None else [self.system]
        return own if self.system_file is None else [*own, _read_instructions(self.system_file)]

    def make_agent(self, box: Toolbox, memory: ConversationMemory | None, screen: Screen) -> Agent:
        """Return the agent."""
        instructions = self.instructions()  # before loading the model, which may take long
        return Agent(
            find_model(self.model, screen),
            box,
            instructions=instructions,
            max_tool_calls=_MAX_CALLS if self.max_calls is None else self.max_calls,
            max_tokens=self.max_tokens,
            max_seconds=self.max_seconds,
            review=make_reviewer(self.approve, screen),
            memory=memory,
        )

    def find_agent(self) -> Agent | None:
        """Return the agent that ``--model`` names; None if it names a model."""
        self.instructions()  # checked before loading the module, which may take long
        agent = find_agent(self.model)
        given = {"--tools": self.tools, "--memory": self.memory}
        if agent is not None and (wrong := [name for name, value in given.items() if value]):
            raise ToolConfigurationError(f"{' and '.join(wrong)}: {self.model!r:.80} is an agent with its own")
        return agent

    def run_settings(self, agent: Agent, screen: Screen) -> dict[str, Any]:
        """Return the run settings for an agent named by ``--model``; the command's options take precedence."""
        limits = {"max_tool_calls": self.max_calls, "max_tokens": self.max_tokens, "max_seconds": self.max_seconds}
        return {
            **limits,
            "instructions": self.instructions() or None,
            "review": None if agent.list_reviewers() else make_reviewer(self.approve, screen),
            "memory_id": self.memory_id,
            "deps": load_deps(self.deps),
        }


def ask(words: Sequence[str], setup: Setup, screen: Screen, files: Sequence[str] = ()) -> Exit:
    """Answer one question, about some files; ``-`` reads the question from standard input."""
    with ExitStack() as opened:
        with _report_setup_errors(setup, screen):
            question = _read_question(words)
            prompt = [question, *read_attachments(files)] if files else question
            memory, agent, memory_id = None, setup.find_agent(), setup.memory_id or MEMORY_ID
            if agent is not None:
                settings = setup.run_settings(agent, screen)
            else:
                box = setup.toolbox()  # before loading the model, which may take long
                if setup.memory is not None:
                    memory = opened.enter_context(closing(ConversationMemory(setup.memory)))
                agent = setup.make_agent(box, memory, screen)
                settings = {"memory_id": memory_id, "deps": load_deps(setup.deps)}
            agent.check_deps(settings["deps"])
        outcome = run_agent(agent, prompt, setup.make_listener(screen), settings)
        if memory is not None:
            save_interrupted(memory, outcome, memory_id)
        return outcome.code


def chat(setup: Setup, screen: Screen) -> Exit:
    """Hold a conversation until the person leaves it or the input ends."""
    with ExitStack() as opened:
        with _report_setup_errors(setup, screen):
            box = setup.toolbox()
            memory = opened.enter_context(closing(ConversationMemory(setup.memory)))
            agent = setup.make_agent(box, memory, screen)
            deps = load_deps(setup.deps)
            agent.check_deps(deps)
        return Chat(agent, box, memory, screen, lambda: setup.make_listener(screen, markdown=True), deps).run()


def _read_instructions(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolConfigurationError(f"--system-file {path!r} cannot be read: {describe_error(error)}") from error


def _read_question(words: Sequence[str]) -> str:
    question = sys.stdin.read() if list(words) == ["-"] else " ".join(words)
    if not question.strip():
        raise ToolConfigurationError(
            "The question is missing: write it after 'ask', or '-' to read it from standard input"
        )
    return question


@contextmanager
def _report_setup_errors(setup: Setup, screen: Screen) -> Iterator[None]:
    """Write the final JSON event if the setup fails before a run."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if setup.as_json:
            JsonOutput(screen).end(error if isinstance(error, Exception) else None, AgentResult())
        raise
