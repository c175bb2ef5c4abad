"""A model that tries the next model when one fails."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable

from toolsemble._runtime.text import describe_error, preview
from toolsemble._vocabulary.errors import ModelError, ToolDefinitionError
from toolsemble.models._chat import MAX_REPLY, ChatModel, ChatReply, ChatRequest, Chunk, StreamRestart, closing
from toolsemble.models._registry import model_of

LOGGER = logging.getLogger("toolsemble.models.fallback")
LOGGER.addHandler(logging.NullHandler())  # prints nothing if the program has not configured logging


def is_model_failure(error: Exception) -> bool:
    """Return whether an exception is a failure of a model or its server, not of the program.

    >>> is_model_failure(ModelError("overloaded")), is_model_failure(KeyError("city"))
    (True, False)
    """
    return isinstance(error, (ModelError, ConnectionError, TimeoutError))


class FallbackModel:
    """A model that tries several models in order until one succeeds.

    A stream can also fall back after its first chunk if its consumer can retract the text: an agent run sends
    :class:`~toolsemble.agent.ModelRetried`, and the text starts over. Otherwise the stream raises. All models get the
    same request, including its settings, so use settings that all of them support.

    >>> from toolsemble import Agent
    >>> from toolsemble.models import ScriptedModel
    >>> model = FallbackModel(ScriptedModel([ModelError("overloaded")]), ScriptedModel(["Rome"]))
    >>> Agent(model).run_sync("Where do all roads lead?").text
    'Rome'
    """

    def __init__(
        self,
        first: ChatModel | str,
        *others: ChatModel | str,
        falls_back: Callable[[Exception], bool] = is_model_failure,
    ) -> None:
        """Set the models, or their names, in the order to try.

        :param falls_back: takes a model's exception, and returns whether to try the next model; default: true for each
        :class:`~toolsemble.ModelError`, ``ConnectionError`` and ``TimeoutError``
        """
        if not others:
            raise ToolDefinitionError("FallbackModel needs at least two models: FallbackModel(first, second)")
        if not callable(falls_back):
            raise ToolDefinitionError(
                f"FallbackModel falls_back must be a function of an error, not {falls_back!r:.80}"
            )
        self.models: tuple[ChatModel, ...] = tuple(model_of(each) for each in (first, *others))
        """The models, in order."""
        self._falls_back = falls_back
        self.native_output = all(getattr(each, "native_output", False) for each in self.models)
        self.max_reply: int = max(getattr(each, "max_reply", MAX_REPLY) for each in self.models)
        self.name = " or ".join(map(_name, self.models))

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Return the reply of the first model that does not fail."""
        errors: list[Exception] = []
        for model in self.models:
            try:
                return await model.reply(request)
            except Exception as error:  # falls_back decides about it
                self._note(model, error, errors)
        raise self._all_failed(errors)

    async def stream(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Yield the chunks of the first model that does not fail.

        If one fails after its first chunk, a :class:`~toolsemble.models.StreamRestart` comes before the chunks of the
        next one; without ``request.can_restart``, a :class:`~toolsemble.ModelError` is raised.
        """
        errors: list[Exception] = []
        for model in self.models:
            started = False
            try:
                async with closing(model.stream(request)) as chunks:
                    async for chunk in chunks:
                        started = True
                        yield chunk
            except Exception as error:
                if started and not request.can_restart:
                    raise self._broken(model, error) from error
                self._note(model, error, errors)
            else:
                return
            if started and len(errors) < len(self.models):
                yield StreamRestart(describe_error(errors[-1]))
        raise self._all_failed(errors)

    def _note(self, model: ChatModel, error: Exception, errors: list[Exception]) -> None:
        """Add a model's error to the list; raise it if the next model must not be tried."""
        if not self._falls_back(error):
            raise error
        errors.append(error)
        if len(errors) < len(self.models):
            LOGGER.warning("%s failed (%s); asking the next model", _name(model), preview(describe_error(error)))

    def _broken(self, model: ChatModel, error: Exception) -> Exception:
        """Return the error for a stream that failed after its first chunk, if its consumer cannot restart."""
        others = self.models[self.models.index(model) + 1 :]
        if not others or not self._falls_back(error):
            return error
        return ModelError(
            f"{_name(model)} failed after its answer had begun: {describe_error(error)}; {_name(others[0])} was not "
            "asked, because the answer would begin anew: read the stream through an Agent, or set can_restart in the "
            "request",
            retryable=getattr(error, "retryable", True),
            retry_after=getattr(error, "retry_after", None),
        )

    def _all_failed(self, errors: list[Exception]) -> ModelError:
        """Return the error of a request that all models failed; retryable if any model's error is."""
        reasons = "; ".join(
            f"{_name(model)}: {describe_error(error)}" for model, error in zip(self.models, errors, strict=True)
        )
        retryable = [each for each in errors if getattr(each, "retryable", True)]
        waits = [getattr(each, "retry_after", None) for each in retryable]
        pause = min((wait for wait in waits if wait is not None), default=None) if None not in waits else None
        failure = ModelError(f"All models failed: {reasons}", retryable=bool(retryable), retry_after=pause)
        failure.__cause__ = ExceptionGroup("the errors of the models", errors)
        return failure


def _name(model: ChatModel) -> str:
    """Return the name of a model, or of its class if it has none."""
    name = getattr(model, "name", None)
    return name if isinstance(name, str) else type(model).__name__
