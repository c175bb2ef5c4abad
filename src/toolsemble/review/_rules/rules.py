"""Rules that allow, deny or ask about calls, by tool and arguments."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.review._asking.ask import OuterReviewer
from toolsemble.review._automatic import AutoReject
from toolsemble.review._request import Continue, ExitEarly, ReviewDecision, ReviewHandler, ReviewRequest, is_reviewer
from toolsemble.review._rules.pattern import matches_name, possibly_matches, surely_matches
from toolsemble.review._terms import ReviewTiming

Range: TypeAlias = Mapping[str, float]
Condition: TypeAlias = str | bool | int | float | Range | Sequence[str | bool | int | float | Range]
_BOUNDS = ("max", "min")
_DECIMAL = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?")


def find_fault(condition: object) -> str:
    """Return what is wrong with a condition, or "".

    >>> find_fault({"mni": 3})
    "unknown key 'mni' of a range; expected max, min; nested arguments are written as one key: 'outer.mni'"
    """
    if not isinstance(condition, (list, tuple)):
        return _find_single_fault(condition)
    if not condition:
        return "an empty list never matches; pass at least one value"
    return next((found for each in condition if (found := _find_single_fault(each))), "")


def meets_conditions(arguments: Any, conditions: Mapping[str, Condition] | str | None, *, every: bool) -> bool:
    """Return whether the arguments of a call meet all conditions, in every possible reading or in at least one.

    >>> meets_conditions({"path": "/tmp/a", "options": {"force": True}}, {"options.force": True}, every=True)
    True
    """
    if conditions is None:
        return True
    if isinstance(conditions, str):
        return isinstance(arguments, str) and _fits(arguments, conditions, every=every)
    given = {"input": arguments} if isinstance(arguments, str) else arguments
    return all(_path_meets(given, key.split("."), condition, every=every) for key, condition in conditions.items())


def _find_single_fault(condition: object) -> str:
    if isinstance(condition, Mapping):
        return _find_range_fault(condition)
    if isinstance(condition, (str, bool)) or _is_number(condition):
        return ""
    expected = "a pattern, a number, true, false, a range with min and max, or a list of these"
    return f"expected {expected}, not {condition!r:.80}"


def _find_range_fault(condition: Mapping[Any, Any]) -> str:
    for key, bound in condition.items():
        if key not in _BOUNDS:
            hint = f"nested arguments are written as one key: 'outer.{key}'"
            return f"unknown key {key!r} of a range; expected {', '.join(_BOUNDS)}; {hint}"
        if not _is_number(bound):
            return f"{key} must be a number, not {bound!r:.80}"
    if not condition:
        return "a range needs min, max or both"
    if len(condition) == len(_BOUNDS) and condition["min"] > condition["max"]:
        return f"min {condition['min']} is more than max {condition['max']}"
    return ""


def _is_number(value: object) -> bool:
    # NaN is not equal to itself.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value  # noqa: PLR0124 - above


def _path_meets(value: Any, path: list[str], condition: Condition, *, every: bool) -> bool:
    """Return whether the values at a path meet a condition; the items of a list are checked.

    A key may itself contain a dot, so a path can lead to several values: a model could add a value for a rule to check.
    """
    if isinstance(value, (list, tuple)):
        found = [_path_meets(item, path, condition, every=every) for item in value]
    elif not path:
        return _fits(value, condition, every=every)
    elif isinstance(value, Mapping):
        keys = {count: ".".join(path[:count]) for count in range(1, len(path) + 1)}
        found = [
            _path_meets(value[key], path[count:], condition, every=every) for count, key in keys.items() if key in value
        ]
    else:
        return False
    return bool(found) and (all if every else any)(found)


def _fits(value: Any, condition: Any, *, every: bool) -> bool:
    if isinstance(condition, (list, tuple)):
        return any(_fits(value, each, every=every) for each in condition)
    if isinstance(condition, str):
        return isinstance(value, str) and (surely_matches if every else possibly_matches)(condition, value)
    if isinstance(condition, bool):
        return value is condition
    number = _number(value, every=every)
    if number is None:
        return False
    if number != number:  # noqa: PLR0124 - NaN: it cannot be compared
        return not every
    if isinstance(condition, Mapping):
        return condition.get("min", number) <= number <= condition.get("max", number)  # type: ignore[no-any-return]  # numbers only
    return bool(number == condition)


def _number(value: Any, *, every: bool) -> Any:
    """Return a value as a number, even from a text: JSON has no decimals, infinity or NaN."""
    if isinstance(value, (int, float)):
        return None if isinstance(value, bool) else value
    if not isinstance(value, str):
        return None
    if every:
        return Decimal(value) if _DECIMAL.fullmatch(value) else None
    try:
        return float(value)
    except ValueError:
        return None


Action: TypeAlias = Literal["allow", "ask", "deny"]

_ACTIONS = ("allow", "ask", "deny")


@dataclass(frozen=True, slots=True)
class Rule:
    r"""A rule for the calls of some tools with some arguments; raises ToolDefinitionError if it is not valid.

    A condition is a pattern for a text; a number, ``True`` or ``False`` for an equal value; ``{"min": 1, "max": 9}``
    for a number in this range; or a list of these, of which one must hold. All conditions must hold, and a missing
    argument meets none. ``"options.force"`` is the argument ``force`` inside the object ``options``. For a string
    tool's text, pass a plain pattern, or a condition for ``input``.

    A rule decides on calls. A question that a tool or an MCP server asks during a call is for a person: an allow rule
    never answers it, a deny rule may reject it. It comes without the call's arguments, so only rules without conditions
    match it.

    Patterns have the syntax of :mod:`fnmatch`: ``*`` matches any text, including slashes, ``?`` any character, ``[ab]``
    one of these; case-sensitive. A model can be tricked into any spelling, so an allow rule only matches unambiguous
    text, and a deny or ask rule matches any text that could be meant:

    - An allow rule matches a tool's name as written, a deny or ask rule in upper or lower case.
    - Paths and URLs are matched as written *and* with ``..``, ``.`` and ``//`` resolved, backslashes read as slashes,
      look-alike signs of other scripts read as ASCII, ``;`` path parameters removed, and ``%2e`` decoded until nothing
      is left to decode. Allow requires all of these readings to match, deny and ask require one, in upper or lower
      case. A ``..`` that escapes the directory is never allowed.
    - In an allow pattern with a slash, ``*`` stays within its segment, except as the whole last segment: ``/tmp/*`` is
      everything below ``/tmp``, ``https://*.example.com/*`` matches no other domain. Where a pattern leaves the host
      open, the host has only letters, digits, ``.``, ``-``, ``_`` and a port.
    - Deny and ask also match a URL without its user, port and trailing dot, Latin letters in place of look-alike
      Cyrillic and Greek ones, and names without the trailing dots and spaces that Windows ignores.
    - Allow never matches a text with control or invisible characters, line breaks, ``%00`` and the selectors after
      some emoji among them, nor one with overlong or more than eight layers of escapes; nor, for a pattern that could
      be of a command (with a space, or without a slash), one of ``; | & < > $`` and the backquote. A pattern ``*``
      does match them, and so does a pattern without wildcards that is the very text.
    - A condition on a list of values: allow requires at least one item, and every item to meet it; deny and ask
      require one matching item.
    - Numeric text, such as a decimal in JSON, is compared as a number.

    A rule sees text, not the file system, a shell or DNS: the tool must guard against links and program options.
    ``/etc/*`` matches everything below the directory; use ``["/etc", "/etc/*"]`` for the directory itself, too.

    >>> rule = Rule("allow", "read_*", {"path": "/tmp/*"})
    >>> rule.matches(ReviewRequest("Reads a file", "read_file", {"path": "/tmp/notes"}))
    True
    >>> rule.matches(ReviewRequest("Reads a file", "read_file", {"path": "/tmp/../etc/passwd"}))
    False
    """

    action: Action
    """Whether matching calls run, are passed to the reviewer, or are rejected."""
    tool: str = "*"
    """The name of the tool, or a pattern."""
    arguments: Mapping[str, Condition] | str | None = field(default=None, hash=False)
    """Conditions by argument name; a pattern for the text of a string tool; None: any arguments."""
    reason: str = ""
    """The reason for a rejection, for the model."""

    def __post_init__(self) -> None:
        if found := _find_rule_fault(self):
            raise ToolDefinitionError(f"Rule: {found}")
        if isinstance(self.arguments, Mapping):
            # A copy: the rule must not change after the check.
            object.__setattr__(self, "arguments", deepcopy(dict(self.arguments)))

    def matches(self, request: ReviewRequest) -> bool:
        """Return whether the rule applies to a request."""
        surely = self.action == "allow"
        named = fnmatchcase(request.tool_name, self.tool) if surely else matches_name(self.tool, request.tool_name)
        return named and meets_conditions(request.arguments, self.arguments, every=surely)


class RulesReview(OuterReviewer):
    """A reviewer that decides by the first matching rule, or asks another handler.

    Allow runs the call, deny rejects it, ask passes it to the handler; a call that no rule matches gets the default.
    Without a handler, ask means reject. For questions during a call, allow means ask.

    >>> from toolsemble._runtime.event_loops import finish
    >>> review = RulesReview([Rule("allow", "read_*"), Rule("deny", "delete_*", reason="nothing is deleted here")])
    >>> finish(review.review(ReviewRequest("Deletes a file", "delete_file", {"path": "old.log"})))
    ExitEarly(reason='nothing is deleted here', timed_out=False)
    >>> finish(review.review(ReviewRequest("Writes a file", "write_file", {"path": "new.log"})))
    ExitEarly(reason='there is no reviewer to ask', timed_out=False)
    """

    def __init__(self, rules: Iterable[Rule], ask: ReviewHandler | None = None, *, default: Action = "ask") -> None:
        """Raise ToolDefinitionError for anything that is not a rule.

        :param rules: the first that matches decides
        :param ask: the reviewer that is asked
        :param default: the action for a call that no rule matches
        """
        self._rules = tuple(rules)
        for place, rule in enumerate(self._rules, 1):
            if not isinstance(rule, Rule):
                raise ToolDefinitionError(f"Rule {place}: expected a Rule, not {type(rule).__name__}")
        if default not in _ACTIONS:
            raise ToolDefinitionError(f"RulesReview: default: {_describe_unknown('action', default, _ACTIONS)}")
        if ask is not None and not is_reviewer(ask):
            raise TypeError(f"RulesReview: ask must have a method 'review'; {type(ask).__name__} has none")
        super().__init__(AutoReject("there is no reviewer to ask") if ask is None else ask)
        self._default = default

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str], ask: ReviewHandler | None = None) -> RulesReview:
        r"""Return a reviewer with the rules of a TOML file: ``default``, and a table ``[[rule]]`` for each rule.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "rules.toml")
        ...     _ = file.write_text('default = "deny"\n[[rule]]\naction = "allow"\ntool = "read_*"\n')
        ...     review = RulesReview.from_toml(file)
        """
        settings = _read_toml(path)
        try:
            return cls(_read_rules(settings), ask, default=settings.get("default", "ask"))
        except ToolDefinitionError as problem:
            raise ToolDefinitionError(f"{os.fspath(path)}: {problem}") from None

    async def review(self, request: ReviewRequest) -> ReviewDecision:
        """Return the decision on one call; the handler's answer is not changed."""
        decision = self._apply_rules(request)
        if decision is None:
            decision = await self.pass_on(request)
        return decision

    def _apply_rules(self, request: ReviewRequest) -> ReviewDecision | None:
        """Return the decision of the rules; None to ask."""
        matching = ((place, rule) for place, rule in enumerate(self._rules, 1) if rule.matches(request))
        place, rule = next(matching, (0, Rule(self._default, reason=f"no rule allows '{request.tool_name}'")))
        if rule.action == "allow" and request.timing is not ReviewTiming.DURING_EXECUTION:
            return Continue()
        if rule.action == "deny":
            return ExitEarly(rule.reason or f"denied by rule {place} for '{rule.tool}'")
        return None


def _find_rule_fault(rule: Any) -> str:
    """Return what is wrong with a rule, or ""."""
    if rule.action not in _ACTIONS:
        return _describe_unknown("action", rule.action, _ACTIONS)
    if not isinstance(rule.tool, str) or not rule.tool:
        return f"tool must be a name or a pattern, not {rule.tool!r:.80}"
    if not isinstance(rule.reason, str):
        return f"reason must be a str, not {type(rule.reason).__name__}"
    if rule.arguments is None or isinstance(rule.arguments, str):
        return ""
    if not isinstance(rule.arguments, Mapping) or not rule.arguments:
        return f"arguments must be conditions by name, or a pattern for a string tool, not {rule.arguments!r:.80}"
    for key, condition in rule.arguments.items():
        if not isinstance(key, str):
            return f"arguments: a name must be a str, not {key!r:.80}"
        if found := find_fault(condition):
            return f"arguments: {key!r}: {found}"
    return ""


def _read_rules(settings: Mapping[str, Any]) -> list[Rule]:
    """Return the rules of a file; raise ToolDefinitionError if they are not valid."""
    if unknown := sorted(settings.keys() - {"default", "rule"}):
        raise ToolDefinitionError(_describe_unknown("key", unknown[0], ("default", "rule")))
    tables = settings.get("rule", [])
    if not isinstance(tables, list):
        raise ToolDefinitionError("'rule' must be a list of tables; begin each with [[rule]]")
    return [_read_rule(place, table) for place, table in enumerate(tables, 1)]


def _read_rule(place: int, table: Any) -> Rule:
    """Return the rule of a table; raise ToolDefinitionError with its position if it is not valid."""
    known = sorted(each.name for each in fields(Rule))
    if not isinstance(table, dict):
        raise ToolDefinitionError(f"Rule {place}: expected a table, not {table!r:.80}")
    if unknown := sorted(table.keys() - set(known)):
        raise ToolDefinitionError(f"Rule {place}: {_describe_unknown('key', unknown[0], known)}")
    if "action" not in table:
        raise ToolDefinitionError(f"Rule {place}: action is missing; expected {', '.join(_ACTIONS)}")
    try:
        return Rule(**table)
    except ToolDefinitionError as problem:
        raise ToolDefinitionError(f"Rule {place}{str(problem).removeprefix('Rule')}") from None


def _read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - takes every kind of path
            return tomllib.load(file)
    except OSError as problem:
        raise ToolDefinitionError(f"{os.fspath(path)}: the rules cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise ToolDefinitionError(f"{os.fspath(path)}: the rules are not valid TOML: {problem}") from None


def _describe_unknown(what: str, found: object, known: Iterable[str]) -> str:
    return f"unknown {what} {found!r:.80}; expected {', '.join(known)}"
