"""The prompt of the local model: tools as lines, example dialogues, and the conversation as steps.

An example uses the name of an offered tool if its parameters are known; other tools are invented. If a search for tools
is offered, the invented ones are found with it before they are called.

Made for small models, which cannot follow the JSON Schemas that larger models get.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from toolsemble._vocabulary.specification import ToolSpecification
from toolsemble.models._chat import ChatRequest
from toolsemble.models._local import steps as local_steps
from toolsemble.models._local.grammar import dump_json, forbid_same_start, format_opening, holds_json, step_grammar
from toolsemble.models._local.reply_reader import PlainReader, StepReader
from toolsemble.models._message import SystemMessage, ToolMessage

_LAMPS = '{"lamps": [{"size": "S", "price": 19.90}, {"size": "M", "price": 22.10}, {"size": "L", "price": 24.50}]}'
_PARTY = "Host: Otto Lind\nDay: Saturday\nPlace: Lake Street 4"
_FAIR = "Fair in Aston\nStart: 2023-09-01\nEnd: 2023-09-17\nEntry: 4 euros"
_BUILTIN = {"calendar": ("datetime", "input"), "open_file": ("file_read", "path"), "compute": ("calculator", "input")}

# The results of searches for the invented tools. The fitting one is mostly, but not always, first: else a small model
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
    """Return a search's reply about the loaded tools."""
    return f"{len(lines.splitlines())} tools are loaded now; call by name the one that fits:\n{lines}"


class _Step(NamedTuple):
    name: str
    arguments: Mapping[str, Any]
    result: str
    search: str = ""
    """The search query. No two dialogues begin with the same one: a small model would copy it."""
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

# A model that sees dialogues with its own tools needs no others. They are fewer, because prompts are slow to process.
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

# With a search tool, one dialogue without a match replaces two dialogues with further searches.
_SEARCHING: tuple[_Dialogue, ...] = (
    *_DIALOGUES[:5],
    (
        "How warm is it in Oslo?",
        (
            _Step(local_steps.SEARCH, {"query": "warm air outside"}, _NOTHING),
            _Step(
                local_steps.SEARCH,
                {"query": "weather"},
                _write_found(_WEATHER),
                note="Of these, weather tells how warm it is.",
            ),
            _Step("weather", {"city": "Oslo"}, "4 degrees, rain", note="weather: weather fits."),
        ),
        "It is 4 degrees in Oslo.",
    ),
    _DIALOGUES[-1],
)


def make_demonstrations(offered: Mapping[str, Collection[str]], final: str) -> list[local_steps.Turn]:
    """Return the example dialogues of a prompt.

    >>> for turn in make_demonstrations({}, "answer")[2:4]:
    ...     print(turn[0].text)
    Name two birds that cannot fly.
    {"plan": ["answer"], "name": "answer", "arguments": {"text": "The ostrich and the penguin."}}

    :param offered: for each offered tool, the names of its required arguments
    :param final: the name of the call that answers
    """
    turns: list[local_steps.Turn] = []
    searches = list(offered.get(local_steps.SEARCH, ())) == ["query"]
    for question, written, answer in _SEARCHING if searches else _choose_dialogues(offered):
        steps = [step._replace(name=_choose_name(step.name, offered)) for step in written]
        if searches:
            steps = [each for step in steps for each in _find_first(step, offered)]
        # A plan has only offered tools, each of them once.
        planned = [step.name for step in steps]
        if searches:
            planned = list(dict.fromkeys(name for name in planned if name in offered))
        turns.append((local_steps.PromptMessage("user", question),))
        turns += _make_calls(question, steps, planned, final)
        begin = format_opening(final, None if steps else [final])
        turns.append((local_steps.PromptMessage("assistant", f"{begin}{dump_json({'text': answer})}}}"),))
    return turns


def _choose_dialogues(offered: Mapping[str, Collection[str]]) -> Sequence[_Dialogue]:
    """Return the short list without the dialogues of other tools if one with two calls is left, else the long list."""
    known = [each for each in _SHORT if all(_choose_name(step.name, offered) in offered for step in each[1])]
    return known if any(len(steps) > 1 for _, steps, _ in known) else _DIALOGUES


def _make_calls(
    question: str, steps: Sequence[_Step], planned: Sequence[str], final: str
) -> Iterator[local_steps.Turn]:
    left = list(planned)
    plan: list[str] | None = [*left, final]
    for step in steps:
        begin = format_opening(step.name, plan, None if plan else step.note)
        plan = None
        if step.name in left:
            left.remove(step.name)
        found = step.result != _NOTHING if step.name == local_steps.SEARCH else None
        following = local_steps.format_next_step(question, left, found=found)
        yield local_steps.make_call_turn(f"{begin}{dump_json(step.arguments)}}}", step.name, step.result, following)


def _choose_name(made_up: str, offered: Mapping[str, Collection[str]]) -> str:
    """Return the built-in tool's name if it is offered, else an invented name."""
    name, argument = _BUILTIN.get(made_up, ("", ""))
    return name if list(offered.get(name, ())) == [argument] else made_up


def _find_first(step: _Step, offered: Collection[str]) -> list[_Step]:
    """Return a step with a search before it, if its tool has to be found."""
    if not step.search or step.name in offered:
        return [step]
    # The note repeats the query, which leads a small model to the fitting tool.
    note = " ".join(filter(None, [step.note, f"{step.search}: {step.name} fits."]))
    found = _write_found(_LINES[step.name])
    return [_Step(local_steps.SEARCH, {"query": step.search}, found, note=step.note), step._replace(note=note)]


FINAL = "final_answer"
"""The name of the call that answers."""

Attempt: TypeAlias = Literal["first", "other start", "sampled", "answer"]
"""The way a step is requested; see :meth:`LocalRequest.attempts`."""

_SAMPLING = {"temperature": 0.8, "seed": 7}  # a fixed seed, for reproducible replies
_MAX_DESCRIPTION = 2000
_TEXT: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 1}},
    "required": ["text"],
}


class LocalRequest:
    """A request to the local model: its prompt, and the grammar and the reader of the next step."""

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._specifications = request.specifications
        taken = {specification.name for specification in self._specifications}
        self.final = FINAL
        while self.final in taken:
            self.final += "_"
        used = any(isinstance(message, ToolMessage) for message in request.messages)
        self.is_chat = not (self._specifications or request.output_schema or used)
        self.structured = request.output_schema is not None
        self.history = local_steps.History(request.messages, self.final, structured=self.structured, plain=self.is_chat)

    @property
    def names(self) -> list[str]:
        """The names of the tools that can be called."""
        return [] if self._request.tool_choice == "none" else [each.name for each in self._specifications]

    @property
    def can_answer(self) -> bool:
        """Whether the model may answer without a call."""
        return self._request.tool_choice != "required" or not self._specifications

    def attempts(self) -> list[Attempt]:
        """Return the attempts for the next step; each is used if the one before repeated an earlier call.

        A small model that cannot continue repeats itself forever. After a failed call it finds another one if the first
        character must differ, or if tokens are sampled; at last it has to answer.
        """
        if self.is_chat or not self.can_answer:
            return ["first"]
        if self.history.failed is None:
            return ["first", "answer"]
        return ["first", "other start", "sampled", "answer"]

    def settings(self, attempt: Attempt) -> dict[str, Any]:
        """Return the settings for llama.cpp."""
        if self.is_chat:
            return {}
        return {"grammar": self.grammar(attempt), **(_SAMPLING if attempt == "sampled" else {})}

    def make_reader(self, attempt: Attempt) -> PlainReader | StepReader:
        """Return the reader of the step."""
        if self.is_chat:
            return PlainReader()
        made = self.history.made if self.can_answer and attempt != "answer" else ()
        return StepReader(self.names, self.final, structured=self.structured, made=made)

    def grammar(self, attempt: Attempt = "first") -> str:
        """Return the grammar of the next step."""
        arguments: dict[str, Mapping[str, Any] | None] = {}
        if self.names and attempt != "answer":
            arguments |= {each.name: each.parameters for each in self._specifications}
        failed = self.history.failed
        if attempt == "other start" and failed is not None and failed.name in arguments:
            arguments[failed.name] = forbid_same_start(arguments[failed.name], local_steps.parse_json(failed.json))
        # The model may not answer before all planned tools were used.
        if attempt == "answer" or (self.can_answer and not set(self.history.left).intersection(self.names)):
            arguments[self.final] = self._answer_schema
        return step_grammar(arguments, self.final, "plan" if self.history.is_new else "note")

    def opening_turns(self, described: Collection[str] = ()) -> list[local_steps.Turn]:
        """Return the turns before the conversation: the system message and the examples.

        :param described: the names of the tools described in the conversation where they were found, so that the prefix
        stays the same and is not processed again
        """
        own = "\n".join(message.text for message in self._request.messages if isinstance(message, SystemMessage))
        if self.is_chat:
            return [(local_steps.PromptMessage("system", own or _CHAT),)]
        found = local_steps.find_described(self.history.turns)
        needed = {each.name: _parameters(each.parameters)[1] for each in self._specifications if each.name not in found}
        tools = [each for each in self._specifications if each.name not in described]
        return [
            (local_steps.PromptMessage("system", self._describe(own, tools)),),
            *make_demonstrations(needed, self.final),
        ]

    @property
    def _answer_schema(self) -> Mapping[str, Any]:
        return self._request.output_schema or _TEXT

    def _describe(self, own: str, tools: Sequence[ToolSpecification]) -> str:
        """Return the system message: the details of each tool, the rules, and a line for each tool at the end."""
        details = [_format_details(each.name, each.description, each.parameters) for each in tools]
        lines = [_format_line(each.name, each.description, each.parameters) for each in tools]
        answer = _format_line(self.final, _ANSWERS, self._answer_schema)
        return "\n".join(filter(None, [own, *details, _RULES, "Tools:", *lines, answer]))


# Without it, small models claim to be made by the authors of their training texts.
_CHAT = "You are a helpful assistant, a small open model that runs locally in toolsemble."
_ANSWERS = "Answers the user. Use it as soon as you know the answer, and when no tool is needed."
_RULES = (
    "Solve the user's task step by step. Each step is one JSON object that calls one tool, and you get its result. "
    "The first step begins with a plan: all tools that the task needs, in order, and final_answer at the end. "
    "A later step begins with a note: the values that it needs, copied from the results as they are. "
    "Small talk and what everybody knows need no tool. But you do not know today's date or what is in a file: look it "
    "up with a tool before you use it. Never compute or count days by yourself. "
    "When nothing is left to do, call final_answer with the whole answer."
)


def _format_details(name: str, description: str, schema: Mapping[str, Any] | None) -> str:
    """Return the rest of a tool's description and its optional parameters, which its line omits."""
    _, more = _split_first_sentence(description)
    properties, required = _parameters(schema)
    other = ", ".join(f"{key}: {_type_name(part)}" for key, part in properties.items() if key not in required)
    text = " ".join(filter(None, [more, f"Optional: {other}." if other else ""]))
    return f"{name}: {text}" if text else ""


def _format_line(name: str, description: str, schema: Mapping[str, Any] | None) -> str:
    """Return a tool as one line, without optional parameters: small models fill in whatever they see."""
    properties, required = _parameters(schema)
    needed = ", ".join(f"{key}: {_type_name(part)}" for key, part in properties.items() if key in required)
    return f"- {name}({needed}): {_split_first_sentence(description)[0]}"


def _parameters(schema: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], Sequence[str]]:
    return (schema or {}).get("properties") or {}, (schema or {}).get("required") or ()


def _split_first_sentence(description: str) -> tuple[str, str]:
    """Return the first sentence, and the rest."""
    text = re.sub(r"\s+", " ", description).strip()[:_MAX_DESCRIPTION]
    end = _SENTENCE.search(text)
    return (text[: end.end()], text[end.end() :].strip()) if end else (text, "")


_SENTENCE = re.compile(r"[.!?](?= [A-Z])")


def _type_name(schema: Any) -> str:
    """Return a short name of a schema's type."""
    if not isinstance(schema, Mapping):
        return "any"
    if "enum" in schema:
        return "|".join(dump_json(value) for value in schema["enum"])[:200]
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return "|".join(_type_name(part) for part in schema[several])
    if holds_json(schema):
        return "JSON"
    kind = schema.get("type", "any")
    if kind == "array":
        return f"{_type_name(schema.get('items', {}))}[]"
    return "|".join(kind) if isinstance(kind, list) else str(kind)
