"""Example dialogues in the prompt, for small models that follow examples better than instructions.

An example uses the name of an offered tool if its parameters are known; other tools are invented. If a search for tools
is offered, the invented ones are found with it before they are called.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from toolsemble.models._local.grammar import dump_json, format_opening
from toolsemble.models._local.history import SEARCH, PromptMessage, Turn, format_next_step, make_call_turn

_LAMPS = '{"lamps": [{"size": "S", "price": 19.90}, {"size": "M", "price": 22.10}, {"size": "L", "price": 24.50}]}'
_PARTY = "Host: Otto Lind\nDay: Saturday\nPlace: Lake Street 4"
_FAIR = "Fair in Aston\nStart: 2023-09-01\nEnd: 2023-09-17\nEntry: 4 euros"
_BUILTIN = {"calendar": ("datetime", "input"), "open_file": ("file_read", "path"), "compute": ("calculator", "input")}

# What a search for the invented tools finds. The one that fits is mostly the first, but not always: else a small model
# calls the first tool of any list.
_LINES = {
    "calendar": "- calendar(input: string): Calculates with dates.\n- week_plan(week: integer): Shows a plan.",
    "open_file": "- open_file(path: string): Reads a file.\n- list_files(folder: string): Lists the files of a folder.",
    "compute": "- price_alert(product: string): Watches a price.\n- compute(input: string): Computes an expression.",
    "send_mail": "- read_mail(folder: string): Reads mails.\n- send_mail(to: string, text: string): Sends a mail.",
}
_WEATHER = "- weather(city: string): Reports the weather in a city.\n- city_map(city: string): Shows a map."
_NOTHING = (
    "No tool fits 'warm air outside'. Nearest by words: warm_plate, weather; to load one, search for its name. "
    "Say in other words what the tool should do, or go on without one."
)


def _write_found(lines: str) -> str:
    """Return what a search for tools says of those that it has loaded."""
    return f"{len(lines.splitlines())} tools are loaded now; call by name the one that fits:\n{lines}"


class _Step(NamedTuple):
    name: str
    arguments: Mapping[str, Any]
    result: str
    search: str = ""
    """What the tool is searched for with. No two dialogues begin with the same: a small model would copy it."""
    note: str | None = None


_Dialogue: TypeAlias = tuple[str, tuple[_Step, ...], str]
"""A question, the steps to its answer, and the answer."""

# Two dialogues without a tool, one with one, one without, four with two dependent calls: when all dialogues without a
# tool came first, the model used tools for general knowledge.
_DIALOGUES: tuple[_Dialogue, ...] = (
    ("Hello!", (), "Hello! How can I help you?"),
    ("Name two birds that cannot fly.", (), "The ostrich and the penguin."),
    (
        "On which day of the week was 2023-08-06?",
        (_Step("calendar", {"input": "weekday of 2023-08-06"}, "Sunday", "day of the week of a date"),),
        "2023-08-06 was a Sunday.",
    ),
    ("Which ocean is the largest?", (), "The Pacific is the largest ocean."),
    (
        "Mail Tom which date is 10 days after today.",
        (
            _Step("calendar", {"input": "today + 10 days"}, "2023-08-19", "add days to a date"),
            _Step("send_mail", {"to": "Tom", "text": "2023-08-19"}, "Sent", "send a mail", "The date is 2023-08-19."),
        ),
        "I mailed Tom that it is 2023-08-19.",
    ),
    (
        "How many days lie between the start and the end in fair.txt?",
        (
            _Step("open_file", {"path": "fair.txt"}, _FAIR, "read a text file"),
            _Step(
                "calendar",
                {"input": "days between 2023-09-01 and 2023-09-17"},
                "16 days",
                "days between two dates",
                "The start is 2023-09-01, the end is 2023-09-17.",
            ),
        ),
        "16 days lie between the start and the end.",
    ),
    (
        "Mail Ida the name of the host in party.txt.",
        (
            _Step("open_file", {"path": "party.txt"}, _PARTY, "look into a file"),
            _Step("send_mail", {"to": "Ida", "text": "Otto Lind"}, "Sent", "send a mail", "The host is Otto Lind."),
        ),
        "I mailed Ida that the host is Otto Lind.",
    ),
    (
        "What do one S and two L of the lamps in lamps.json cost?",
        (
            _Step("open_file", {"path": "lamps.json"}, _LAMPS, "read a file"),
            _Step(
                "compute",
                {"input": "19.90 + 2 * 24.50"},
                "68.9",
                "compute a sum of prices",
                "One S is 19.90, one L is 24.50.",
            ),
        ),
        "One S and two L cost 68.90.",
    ),
)

# A model that sees dialogues with its own tools needs no others. They are fewer: reading a prompt takes long.
_SHORT: tuple[_Dialogue, ...] = (
    *_DIALOGUES[:3],
    (
        "Which date is 10 days after today?",
        (_Step("calendar", {"input": "today + 10 days"}, "2023-08-19"),),
        "It is 2023-08-19.",
    ),
    _DIALOGUES[3],
    _DIALOGUES[5],
    _DIALOGUES[7],
)

# With a search, one that finds nothing that fits stands in place of two dialogues with further searches.
_SEARCHING: tuple[_Dialogue, ...] = (
    *_DIALOGUES[:5],
    (
        "How warm is it in Oslo?",
        (
            _Step(SEARCH, {"query": "warm air outside"}, _NOTHING),
            _Step(SEARCH, {"query": "weather"}, _write_found(_WEATHER), note="Of these, weather tells how warm it is."),
            _Step("weather", {"city": "Oslo"}, "4 degrees, rain", note="weather: weather fits."),
        ),
        "It is 4 degrees in Oslo.",
    ),
    _DIALOGUES[-1],
)


def make_demonstrations(offered: Mapping[str, Collection[str]], final: str) -> list[Turn]:
    """Return the example dialogues of a prompt.

    >>> for turn in make_demonstrations({}, "answer")[2:4]:
    ...     print(turn[0].text)
    Name two birds that cannot fly.
    {"plan": ["answer"], "name": "answer", "arguments": {"text": "The ostrich and the penguin."}}

    :param offered: for each offered tool, the names of its required arguments
    :param final: the name of the call that answers
    """
    turns: list[Turn] = []
    searches = list(offered.get(SEARCH, ())) == ["query"]
    for question, written, answer in _SEARCHING if searches else _choose_dialogues(offered):
        steps = [step._replace(name=_choose_name(step.name, offered)) for step in written]
        if searches:
            steps = [each for step in steps for each in _find_first(step, offered)]
        # A plan has only tools that are offered, each of them once.
        planned = [step.name for step in steps]
        if searches:
            planned = list(dict.fromkeys(name for name in planned if name in offered))
        turns.append((PromptMessage("user", question),))
        turns += _make_calls(question, steps, planned, final)
        begin = format_opening(final, None if steps else [final])
        turns.append((PromptMessage("assistant", f"{begin}{dump_json({'text': answer})}}}"),))
    return turns


def _choose_dialogues(offered: Mapping[str, Collection[str]]) -> Sequence[_Dialogue]:
    """Return the short list without the dialogues of other tools if one with two calls is left, else the long list."""
    known = [each for each in _SHORT if all(_choose_name(step.name, offered) in offered for step in each[1])]
    return known if any(len(steps) > 1 for _, steps, _ in known) else _DIALOGUES


def _make_calls(question: str, steps: Sequence[_Step], planned: Sequence[str], final: str) -> Iterator[Turn]:
    left = list(planned)
    plan: list[str] | None = [*left, final]
    for step in steps:
        begin = format_opening(step.name, plan, None if plan else step.note)
        plan = None
        if step.name in left:
            left.remove(step.name)
        found = step.result != _NOTHING if step.name == SEARCH else None
        following = format_next_step(question, left, found=found)
        yield make_call_turn(f"{begin}{dump_json(step.arguments)}}}", step.name, step.result, following)


def _choose_name(made_up: str, offered: Mapping[str, Collection[str]]) -> str:
    """Return the name of the built-in tool if it is offered; else that of an invented one."""
    name, argument = _BUILTIN.get(made_up, ("", ""))
    return name if list(offered.get(name, ())) == [argument] else made_up


def _find_first(step: _Step, offered: Collection[str]) -> list[_Step]:
    """Return a step with a search before it, if its tool has to be found."""
    if not step.search or step.name in offered:
        return [step]
    # The note repeats what was searched for, which leads a small model to the tool that fits it.
    note = " ".join(filter(None, [step.note, f"{step.search}: {step.name} fits."]))
    found = _write_found(_LINES[step.name])
    return [_Step(SEARCH, {"query": step.search}, found, note=step.note), step._replace(note=note)]
