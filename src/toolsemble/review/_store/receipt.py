"""Receipts: signed records of what was approved, by whom, and until when."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, fields, replace
from typing import Literal

from toolsemble._runtime.signing import canonical_json, is_signed, sign
from toolsemble._runtime.text import HIDDEN
from toolsemble._vocabulary.errors import ReviewRefusedError
from toolsemble.review._request import Continue, Edit, ExitEarly, ReviewDecision, ReviewRequest

MAX_CLOCK_SKEW = 300.0
"""Seconds by which the clocks of the participants may differ."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """A signed answer to one request; it is not valid for another tool, schema, arguments or run.

    Nor is it valid for another call id, unless the program chose the id of the run: after a crash, the same call of
    that run has another id.

    >>> request = ReviewRequest("Deletes a file", "delete", "old.log")
    >>> receipt = Receipt.issue(request, Continue(), person="ada", role="", expires_at=2e9, secret="s")
    >>> receipt.check(request, "s", request.asked_at)
    >>> receipt.decision, receipt.person
    (Continue(always=None), 'ada')
    """

    request_id: str
    """The id of the request."""
    tool_name: str
    """The tool."""
    schema_digest: str
    """The digest of the tool's schema."""
    arguments_digest: str
    """The digest of the arguments that the person saw."""
    call_id: str
    """The id of the call."""
    run_id: str
    """The id of the run."""
    kind: Literal["continue", "edit", "exit_early"]
    """The kind of decision."""
    text: str
    """The revised text of an edit, or the reason of a refusal."""
    always: Literal["tool", "arguments"] | None
    """What is approved for the rest of the run."""
    person: str
    """Who answered, if known."""
    role: str
    """The role of the person."""
    issued_at: float
    """When it was answered, in seconds since the epoch."""
    expires_at: float
    """Until when it is valid, in seconds since the epoch."""
    signature: str = ""
    """The signature of the other fields."""

    @classmethod
    def issue(
        cls,
        request: ReviewRequest,
        decision: ReviewDecision,
        *,
        person: str,
        role: str,
        expires_at: float,
        secret: str | bytes,
        issued_at: float | None = None,
    ) -> Receipt:
        """Return the signed receipt of a decision; raise ReviewRefusedError for anything else.

        ``timed_out`` of a decision is not kept: an answer that exists was in time.
        """
        kind, text, always = split_decision(decision)
        receipt = cls(
            request.id,
            request.tool_name,
            request.schema_digest,
            request.arguments_digest,
            request.call_id,
            request.run_id,
            kind,
            text,
            always,
            person,
            role,
            time.time() if issued_at is None else issued_at,
            expires_at,
        )
        return replace(receipt, signature=sign(secret, "receipt", asdict(receipt)))

    @property
    def decision(self) -> ReviewDecision:
        """The decision."""
        if self.kind == "continue":
            return Continue(self.always, person=self.person)
        if self.kind == "edit":
            return Edit(self.text, person=self.person)
        return ExitEarly(self.text, person=self.person)

    def check(self, request: ReviewRequest, secret: str | bytes, now: float) -> None:
        """Raise ReviewRefusedError unless this is the signed answer to exactly this request, and still valid."""
        if not self._is_sealed("receipt", secret):
            spent = self._is_sealed("spent", secret)
            raise ReviewRefusedError("it counts no more" if spent else "the signature does not fit")
        for what, mine, asked in (
            ("another tool", self.tool_name, request.tool_name),
            ("another schema", self.schema_digest, request.schema_digest),
            ("other arguments", self.arguments_digest, request.arguments_digest),
            # A provider gives a call another id when it is asked again, after a crash.
            ("another call", self.call_id, self.call_id if request.resumable else request.call_id),
            ("another run", self.run_id, request.run_id),
            ("another request", self.request_id, request.id),
        ):
            if mine != asked:
                raise ReviewRefusedError(f"it is for {what}")
        if request.durable:
            return  # it is valid until the run ends, whatever the clock says
        if now >= self.expires_at:
            raise ReviewRefusedError("it has expired")
        # A clock that was set back would make every old approval valid again.
        if now < self.issued_at - MAX_CLOCK_SKEW:
            raise ReviewRefusedError("it was given in the future; check the clock")

    def spent(self, secret: str | bytes, *, hidden: bool) -> Receipt | None:
        """Return the receipt with a signature that marks it as used; None if it was never valid.

        Without the secret nobody can make it valid again, except with an older copy.

        :param hidden: whether to mask the text of an edit, because it may contain secrets
        """
        if not self._is_sealed("receipt", secret):
            return None
        kept = replace(self, text=HIDDEN if hidden and self.kind == "edit" else self.text, signature="")
        return replace(kept, signature=sign(secret, "spent", asdict(kept)))

    def is_genuine(self, secret: str | bytes) -> bool:
        """Return whether it was signed with the secret, used or not."""
        return self._is_sealed("receipt", secret) or self._is_sealed("spent", secret)

    def _is_sealed(self, kind: str, secret: str | bytes) -> bool:
        return is_signed(self.signature, secret, kind, asdict(replace(self, signature="")))

    def to_json(self) -> str:
        """Return the receipt as JSON text; :meth:`from_json` reads it."""
        return canonical_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        """Return the receipt from the text of :meth:`to_json`; refuse any other text, even an equivalent one.

        >>> Receipt.from_json("{}")
        Traceback (most recent call last):
        ...
        toolsemble.ReviewRefusedError: the receipt cannot be read
        """
        try:
            values = json.loads(text)
            receipt = cls(**{each.name: values.pop(each.name) for each in fields(cls)})
            whole = not values and receipt.to_json() == text and isinstance(receipt.signature, str)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            whole = False
        if not whole:
            raise ReviewRefusedError("the receipt cannot be read")
        return receipt


def split_decision(
    decision: ReviewDecision,
) -> tuple[Literal["continue", "edit", "exit_early"], str, Literal["tool", "arguments"] | None]:
    """Return a decision as JSON values; raise ReviewRefusedError for anything else.

    >>> split_decision(ExitEarly("too much"))
    ('exit_early', 'too much', None)
    """
    if type(decision) is Continue and decision.always in (None, "tool", "arguments"):
        return "continue", "", decision.always
    if type(decision) is Edit and issubclass(type(decision.revised), str):
        return "edit", str.__str__(decision.revised), None
    if type(decision) is ExitEarly and issubclass(type(decision.reason), str):
        return "exit_early", str.__str__(decision.reason), None
    raise ReviewRefusedError("the answer is not a decision; pass Continue, Edit or ExitEarly")
