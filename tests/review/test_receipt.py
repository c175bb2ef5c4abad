"""Receipts: an answer counts for exactly what was asked, and for nothing else."""

import json
from dataclasses import asdict, replace
from unittest.mock import Mock

import pytest

from toolsemble import ToolDefinitionError
from toolsemble._runtime.signing import secret_bytes
from toolsemble._vocabulary.errors import ReviewRefusedError
from toolsemble.review import Continue, Edit, ExitEarly, Receipt, ReviewRequest

SECRET = b"a secret of the tests"
NOW = 1_700_000_000.25
REQUEST = ReviewRequest(
    "Deletes a file",
    "delete",
    {"path": "old.log"},
    call_id="c1",
    run_id="r1",
    id="q1",
    schema_digest="abc",
    asked_at=NOW,
)


def issue(decision=Continue(), request=REQUEST, secret=SECRET):  # noqa: B008 - a frozen value
    return Receipt.issue(
        request, decision, person="zoë", role="admin", expires_at=NOW + 60, secret=secret, issued_at=NOW
    )


@pytest.mark.parametrize(
    "decision",
    [
        Continue(),
        Continue("tool"),
        Continue("arguments"),
        Edit("rm older"),
        Edit("half \ud800"),
        ExitEarly(),
        ExitEarly("no"),
    ],
)
def test_receipt_json_round_trip(decision):
    receipt = Receipt.from_json(issue(decision).to_json())
    receipt.check(REQUEST, SECRET, NOW + 1)
    assert (receipt, receipt.decision) == (issue(decision), decision)


def test_receipt_drops_timed_out():
    assert issue(ExitEarly("no", timed_out=True)).decision == ExitEarly("no")


def test_receipt_uses_the_current_time():
    receipt = Receipt.issue(REQUEST, Continue(), person="", role="", expires_at=0.0, secret=SECRET)
    assert receipt.issued_at > NOW


@pytest.mark.parametrize(
    "answer",
    [
        None,
        True,
        "continue",
        Continue,
        Continue("for ever"),
        Edit(None),
        Edit(b"x"),
        ExitEarly(None),
        {},
        Mock(spec=Continue, always=None),
        Mock(spec=Edit, revised="x"),
        Mock(spec=ExitEarly, reason="x"),
    ],
)
def test_rejects_invalid_decision(answer):
    with pytest.raises(ReviewRefusedError, match=r"^the answer is not a decision; pass Continue, Edit or ExitEarly$"):
        issue(answer)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"tool_name": "write"}, "it is for another tool"),
        ({"schema_digest": "abd"}, "it is for another schema"),
        ({"arguments": {"path": "old.lo"}}, "it is for other arguments"),
        ({"call_id": "c2", "chosen_run": False}, "it is for another call"),
        ({"run_id": "r2"}, "it is for another run"),
        ({"id": "q2"}, "it is for another request"),
    ],
)
def test_receipt_is_valid_only_for_its_request(changed, reason):
    with pytest.raises(ReviewRefusedError, match=f"^{reason}$"):
        issue().check(replace(REQUEST, **changed), SECRET, NOW)


def test_receipt_is_valid_for_another_call_id_of_a_chosen_run():
    issue().check(replace(REQUEST, call_id="c2"), SECRET, NOW)


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (NOW + 60, "it has expired"),
        (NOW + 1e9, "it has expired"),
        (NOW - 301, "it was given in the future; check the clock"),
    ],
)
def test_receipt_is_valid_only_in_its_time_window(now, reason):
    issue().check(REQUEST, SECRET, NOW + 59.9)
    issue().check(REQUEST, SECRET, NOW - 299)
    with pytest.raises(ReviewRefusedError, match=f"^{reason}$"):
        issue().check(REQUEST, SECRET, now)


@pytest.mark.parametrize("name", asdict(issue()))
def test_changing_any_field_breaks_the_signature(name):
    value = getattr(issue(), name)
    other = {"kind": "edit", "always": "tool"}.get(name, value + 1 if isinstance(value, float) else f"{value}x")
    with pytest.raises(ReviewRefusedError, match=r"^the signature does not match$"):
        replace(issue(), **{name: other}).check(REQUEST, SECRET, NOW)


def test_other_secret_breaks_the_signature():
    with pytest.raises(ReviewRefusedError, match=r"^the signature does not match$"):
        issue(secret=b"another").check(REQUEST, SECRET, NOW)


@pytest.mark.parametrize("mask", [1, 32, 128])
def test_rejects_any_changed_byte(mask):
    text = issue(Edit("é")).to_json().encode()
    accepted = []
    for place in range(len(text)):
        changed = bytearray(text)
        changed[place] ^= mask
        try:
            Receipt.from_json(changed.decode("latin-1")).check(REQUEST, SECRET, NOW)
        except ReviewRefusedError:
            continue
        accepted.append(bytes(changed))
    assert accepted == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        "[" * 100_000,
        "\ud800",
        issue().to_json() + " ",
        issue().to_json().replace("{", '{"always":null,'),
        json.dumps({**asdict(issue()), "signature": 5}, sort_keys=True, separators=(",", ":")),
        json.dumps({**asdict(issue()), "more": 5}, sort_keys=True, separators=(",", ":")),
    ],
    ids=range(10),
)
def test_rejects_invalid_receipt_text(text):
    with pytest.raises(ReviewRefusedError, match=r"^the receipt cannot be read$"):
        Receipt.from_json(text)


@pytest.mark.parametrize("secret", ["", b"", None, 5])
def test_rejects_invalid_secret(secret):
    with pytest.raises(ToolDefinitionError, match=r"^A review secret must be a non-empty str or bytes"):
        secret_bytes(secret)
