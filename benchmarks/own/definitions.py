"""Defining the five-parameter search, and what a model sees of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from peers.task import ARGUMENTS, Order, new_search
from pydantic import BaseModel, Field
from timing import Repeated

from own.job import adapter
from own.measure import Comparison, Subject
from toolsemble import Toolbox, ToolCall, tool


def comparisons() -> Iterator[Comparison]:
    """Return the comparisons of definitions."""
    what = "a tool from a function, and its specification"
    model = "a pydantic model of the same fields, and its JSON schema"
    yield Comparison(Subject("define", what, model), Repeated(_tool), Repeated(_model))
    function = "a pydantic `TypeAdapter` of the function, and its JSON schema"
    yield Comparison(Subject("define", what, function), Repeated(_tool), Repeated(_adapter))
    first = Subject("define", f"{what}, and a first call", f"{model}, and a first `validate_json`")
    yield Comparison(first, Repeated(_tool_called), Repeated(_model_called))


def _box() -> Toolbox:
    return Toolbox([tool(new_search())])


def _tool() -> object:
    return _box().specifications[0].parameters


def _tool_called() -> object:
    box = _box()
    return box.specifications[0].parameters, box.execute(ToolCall("search", ARGUMENTS, id="call_1")).text


def _arguments() -> type[BaseModel]:
    """Return a model that pydantic has not seen."""

    class Arguments(BaseModel):
        """Search the documents."""

        query: Annotated[str, Field(description="The words to look for.")]
        limit: Annotated[int, Field(description="How many results to give at most.")]
        min_score: Annotated[float, Field(ge=0, le=1, description="The least score that a result needs.")]
        tags: Annotated[list[str], Field(description="The tags that a result must carry.")]
        order: Annotated[Order, Field(description="How the results are sorted.")] = "desc"

    return Arguments


def _model() -> object:
    return _arguments().model_json_schema()


def _model_called() -> object:
    arguments = _arguments()
    return arguments.model_json_schema(), new_search()(**vars(arguments.model_validate_json(ARGUMENTS)))


def _adapter() -> object:
    return adapter(new_search()).json_schema()
