"""Models and agents for the tests of journals: replies depend on the conversation, so that any process gives them."""

from __future__ import annotations

from toolsemble import Agent
from toolsemble.models import AssistantMessage, FunctionModel, TokenUsage

USAGE = TokenUsage(10, 5)


class Killed(BaseException):
    """Stands for the end of a process: nothing of the run handles it, and nothing is written after it."""


def script(*replies, asked=None, usage=USAGE):
    """Return a model that gives the n-th reply to a conversation with n replies so far, and counts its requests.

    A reply that is a class of exceptions is raised.
    """
    asked = [] if asked is None else asked

    def reply(request):
        turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
        asked.append(turn)
        given = replies[turn]
        if isinstance(given, type):
            raise given
        return given

    return FunctionModel(reply, usage=usage)


def clerk(journal, tools, *replies, asked=None, **settings):
    """Return an agent named clerk with a journal."""
    return Agent(script(*replies, asked=asked), tools, journal=journal, name="clerk", **settings)
