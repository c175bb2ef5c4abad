"""The commands that talk to a model: one question, or a conversation."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from toolsemble.agent.agent import Agent
from toolsemble.agent.memory import ConversationMemory
from toolsemble.agent.result import AgentResult
from toolsemble.cli.approval import reviewer
from toolsemble.cli.chat import Chat
from toolsemble.cli.exit_codes import Exit
from toolsemble.cli.follow import followed, remember
from toolsemble.cli.json_output import Journal
from toolsemble.cli.model import model_named
from toolsemble.cli.screen import Screen
from toolsemble.cli.targets import split_targets, toolbox_of
from toolsemble.cli.text_output import Listener, Narrator
from toolsemble.errors import ToolConfigurationError
from toolsemble.toolbox.toolbox import Toolbox

_CALLS = 25


@dataclass(frozen=True, slots=True)
class Setup:
    """With whom and with what a person wants to talk; None is for what is usual.

    >>> Setup(tools=["calculator,datetime"]).approve
    'ask'
    """

    model: str | None = None
    """The model's name."""
    tools: Sequence[str] = ()
    """The tools, as they are named on the command line."""
    approve: str = "ask"
    """Who approves calls that need it."""
    max_calls: int | None = None
    """How many calls of tools an answer may take."""
    max_tokens: int | None = None
    """How many tokens an answer may take."""
    max_seconds: float | None = None
    """How long an answer may take."""
    memory: str | None = None
    """The file in which the conversation is kept."""
    as_json: bool = False
    """Whether events are written as lines of JSON."""
    quiet: bool = False
    """Whether only the answer is written."""

    def listener(self, screen: Screen) -> Listener:
        """Give who is to be told of a run."""
        return Journal(screen) if self.as_json else Narrator(screen, quiet=self.quiet)

    def toolbox(self) -> Toolbox:
        """Give the tools."""
        return toolbox_of(split_targets(self.tools))

    def agent(self, box: Toolbox, memory: ConversationMemory | None, screen: Screen) -> Agent:
        """Give the agent."""
        return Agent(
            model_named(self.model, screen),
            box,
            max_iterations=_CALLS if self.max_calls is None else self.max_calls,
            max_tokens=self.max_tokens,
            max_seconds=self.max_seconds,
            review=reviewer(self.approve, screen),
            memory=memory,
        )


def ask(words: Sequence[str], setup: Setup, screen: Screen) -> Exit:
    """Answer one question; ``-`` reads it from standard input."""
    with ExitStack() as opened:
        with _prepared(setup, screen):
            question = _question(words)
            box = setup.toolbox()  # first: tools are misspelled more often than models, which may take long to load
            memory = None if setup.memory is None else opened.enter_context(closing(ConversationMemory(setup.memory)))
            agent = setup.agent(box, memory, screen)
        outcome = followed(agent, question, setup.listener(screen))
        if memory is not None:
            remember(memory, outcome)
        return outcome.code


def chat(setup: Setup, screen: Screen) -> Exit:
    """Hold a conversation until the person leaves it or the input ends."""
    with ExitStack() as opened:
        with _prepared(setup, screen):
            box = setup.toolbox()
            memory = opened.enter_context(closing(ConversationMemory(setup.memory)))
            agent = setup.agent(box, memory, screen)
        return Chat(agent, box, memory, screen, lambda: setup.listener(screen)).held()


def _question(words: Sequence[str]) -> str:
    question = sys.stdin.read() if list(words) == ["-"] else " ".join(words)
    if not question.strip():
        raise ToolConfigurationError("There is no question: write it after 'ask', or '-' to read it from the input")
    return question


@contextmanager
def _prepared(setup: Setup, screen: Screen) -> Iterator[None]:
    """Have lines of JSON end as those of a run do, also when it does not come to one."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if setup.as_json:
            Journal(screen).end(error if isinstance(error, Exception) else None, AgentResult())
        raise
