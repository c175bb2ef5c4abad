"""Phrases for the rarer errors of pydantic."""

from __future__ import annotations

import re
from typing import Annotated, Any, Union

import pytest
from pydantic import AfterValidator, BaseModel, Discriminator, Tag
from pydantic_core import PydanticCustomError

from toolsemble import Toolbox, ToolCall, tool


class Big(BaseModel):
    size: int


class Small(BaseModel):
    size: int


def reject_name(name: str) -> str:
    raise PydanticCustomError("name_taken", "the name {name} is taken; choose another", {"name": name})


def size_tag(value: Any) -> Any:
    return value.get("size") if isinstance(value, dict) else None


Sized = Annotated[Union[Annotated[Big, Tag("big")], Annotated[Small, Tag("small")]], Discriminator(size_tag)]


@pytest.mark.parametrize(
    ("annotation", "sent", "problem"),
    [
        (Annotated[str, AfterValidator(reject_name)], "ada", "the name ada is taken; choose another"),
        (
            Union[Annotated[str, AfterValidator(reject_name)], int],
            "ada",
            "the name ada is taken; choose another, expected an integer",
        ),
        (re.Pattern[str], "(", "expected a valid regular expression"),
        (Sized, {"size": "huge"}, "expected one of 'big', 'small' as its kind"),
        (Sized, {}, "expected another value"),
    ],
)
def test_pydantic_errors_become_phrases(annotation, sent, problem):
    def take(value):
        raise AssertionError

    take.__annotations__ = {"value": annotation}
    reply = Toolbox([tool(take)]).execute(ToolCall("take", {"value": sent}))
    assert reply.text == f"Error: Invalid arguments for 'take': value: {problem}"
