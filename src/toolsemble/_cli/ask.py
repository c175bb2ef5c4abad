"""The commands ``ask`` and ``chat``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolsemble._cli.approval import make_reviewer
from toolsemble._cli.attachments import read_attachments
from toolsemble._cli.chat import Chat
from toolsemble._cli.exit_codes import Exit
from toolsemble._cli.follow import MEMORY_ID, run_agent, save_interrupted
from toolsemble._cli.json_output import JsonOutput
from toolsemble._cli.model_option import find_agent, find_model
from toolsemble._cli.screen import Screen
from toolsemble._cli.targets import load_deps, load_toolbox, split_targets
from toolsemble._cli.text_output import Listener, TextOutput
from toolsemble._runtime.text import describe_error
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.agent._agent import Agent
from toolsemble.agent._memory import ConversationMemory
from toolsemble.agent._result import AgentResult

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
    """The targets of tools."""
    approve: str = "ask"
    """The value of ``--approve``."""
    max_calls: int | None = None
    """The maximum number of tool calls for an answer; None: 25."""
    max_tokens: int | None = None
    """The maximum number of tokens for an answer; None: no limit."""
    max_seconds: float | None = None
    """The maximum number of seconds for an answer; None: no limit."""
    memory: str | None = None
    """The file of the conversation; None: it is not saved."""
    system: str | None = None
    """The instructions for the model; None: none."""
    system_file: str | None = None
    """The file of further instructions; None: none."""
    as_json: bool = False
    """Whether events are written as lines of JSON."""
    quiet: bool = False
    """Whether only the answer is written."""
    deps: str | None = None
    """The target of the deps of tools; None: there are none."""
    memory_id: str | None = None
    """The id of the conversation or user; None: that of an agent, or of this program."""

    def make_listener(self, screen: Screen, *, markdown: bool = False) -> Listener:
        """Return the listener that writes the events of a run."""
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
        instructions = self.instructions()  # before the model, which may take long to load
        return Agent(
            find_model(self.model, screen),
            box,
            instructions=instructions,
            max_iterations=_MAX_CALLS if self.max_calls is None else self.max_calls,
            max_tokens=self.max_tokens,
            max_seconds=self.max_seconds,
            review=make_reviewer(self.approve, screen),
            memory=memory,
        )

    def find_agent(self) -> Agent | None:
        """Return the agent that ``--model`` names; None if it names a model."""
        self.instructions()  # checked before the module, which may take long to load
        agent = find_agent(self.model)
        given = {"--tools": self.tools, "--memory": self.memory}
        if agent is not None and (wrong := [name for name, value in given.items() if value]):
            raise ToolConfigurationError(f"{' and '.join(wrong)}: {self.model!r:.80} is an agent, which has its own")
        return agent

    def run_settings(self, agent: Agent, screen: Screen) -> dict[str, Any]:
        """Return the settings of a run of an agent that ``--model`` names; those of the command come before its own."""
        limits = {"max_iterations": self.max_calls, "max_tokens": self.max_tokens, "max_seconds": self.max_seconds}
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
                box = setup.toolbox()  # before the model, which may take long to load
                if setup.memory is not None:
                    memory = opened.enter_context(closing(ConversationMemory(setup.memory)))
                agent = setup.make_agent(box, memory, screen)
                settings = {"memory_id": memory_id, "deps": load_deps(setup.deps)}
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
