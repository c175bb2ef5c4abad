"""The receipt of an answer: what exactly was approved, by whom, and until when."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, fields, replace
from typing import Literal

from toolsemble.errors import ReviewRefusedError
from toolsemble.review.decision import Continue, Edit, ExitEarly, ReviewDecision
from toolsemble.review.request import ReviewRequest
from toolsemble.runtime.signing import canonical_json, is_signed, sign
from toolsemble.schema.display import HIDDEN

CLOCKS_DIFFER = 300.0
"""How many seconds the clocks of those who take part may differ."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """A signed answer to one request; for any other tool, schema, arguments, call or run it is worth nothing.

    >>> request = ReviewRequest("Deletes a file", "delete", "old.log")
    >>> receipt = Receipt.issue(request, Continue(), person="ada", role="", expires_at=2e9, secret="s")
    >>> receipt.check(request, "s", request.asked_at)
    >>> receipt.decision, receipt.person
    (Continue(always=None), 'ada')
    """

    request_id: str
    """The request that was answered."""
    tool_name: str
    """The tool that it was about."""
    schema_digest: str
    """The digest of the tool's schema."""
    arguments_digest: str
    """The digest of the arguments that the person saw."""
    call_id: str
    """The call that waits."""
    run_id: str
    """The run that the call belongs to."""
    kind: Literal["continue", "edit", "exit_early"]
    """What was decided."""
    text: str
    """The revised text of an edit, or the reason of a refusal."""
    always: Literal["tool", "arguments"] | None
    """What the person need not be asked about again."""
    person: str
    """Who answered, where it was said."""
    role: str
    """The role of whoever answered."""
    issued_at: float
    """When it was answered, in seconds since the epoch."""
    expires_at: float
    """Until when it counts."""
    signature: str = ""
    """The seal of all the rest."""

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
        """Give the signed receipt of a decision; refuse what is none.

        That a decision is of somebody who came too late is not kept: who answers was in time.
        """
        kind, text, always = _taken_apart(decision)
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
        """What was decided."""
        if self.kind == "continue":
            return Continue(self.always)
        return Edit(self.text) if self.kind == "edit" else ExitEarly(self.text)

    def check(self, request: ReviewRequest, secret: str | bytes, now: float) -> None:
        """Refuse, with the reason, unless this is the signed answer to exactly this request, and still counts."""
        if not self._sealed("receipt", secret):
            spent = self._sealed("spent", secret)
            raise ReviewRefusedError("it counts no more" if spent else "the signature does not fit")
        for what, mine, asked in (
            ("another tool", self.tool_name, request.tool_name),
            ("another schema", self.schema_digest, request.schema_digest),
            ("other arguments", self.arguments_digest, request.arguments_digest),
            ("another call", self.call_id, request.call_id),
            ("another run", self.run_id, request.run_id),
            ("another request", self.request_id, request.id),
        ):
            if mine != asked:
                raise ReviewRefusedError(f"it is for {what}")
        if now >= self.expires_at:
            raise ReviewRefusedError("it has expired")
        # A clock that was put back would let every old approval live again.
        if now < self.issued_at - CLOCKS_DIFFER:
            raise ReviewRefusedError("it was given in the future; check the clock")

    def spent(self, secret: str | bytes, *, hidden: bool) -> Receipt | None:
        """Return the receipt under a seal that says that it counts no more; None for one that never counted.

        Whoever has no secret cannot make it count again, unless with a copy from before.

        :param hidden: whether the text of an edit is left out, because there may be secrets in it
        """
        if not self._sealed("receipt", secret):
            return None
        kept = replace(self, text=HIDDEN if hidden and self.kind == "edit" else self.text, signature="")
        return replace(kept, signature=sign(secret, "spent", asdict(kept)))

    def _sealed(self, kind: str, secret: str | bytes) -> bool:
        return is_signed(self.signature, secret, kind, asdict(replace(self, signature="")))

    def to_json(self) -> str:
        """Give the receipt as JSON text, from which :meth:`from_json` makes an equal one."""
        return canonical_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        """Give the receipt that :meth:`to_json` wrote; refuse any other text, even where it means the same.

        >>> Receipt.from_json("{}")
        Traceback (most recent call last):
        ...
        toolsemble.errors.ReviewRefusedError: the receipt cannot be read
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


def _taken_apart(
    decision: ReviewDecision,
) -> tuple[Literal["continue", "edit", "exit_early"], str, Literal["tool", "arguments"] | None]:
    """Give a decision as JSON values; refuse everything unclear."""
    if type(decision) is Continue and decision.always in (None, "tool", "arguments"):
        return "continue", "", decision.always
    if type(decision) is Edit and issubclass(type(decision.revised), str):
        return "edit", str.__str__(decision.revised), None
    if type(decision) is ExitEarly and issubclass(type(decision.reason), str):
        return "exit_early", str.__str__(decision.reason), None
    raise ReviewRefusedError("the answer is not a decision; give Continue, Edit or ExitEarly")
