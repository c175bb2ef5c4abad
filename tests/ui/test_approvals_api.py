"""The endpoints of approvals: forms, answers, roles, and the audit."""

import json
from threading import Thread

import pytest

from helpers import ui_shop
from helpers.ui_client import Desk
from helpers.wait import until
from toolsemble import Toolbox, ToolCall
from toolsemble._ui.people import add_person
from toolsemble.review import Continue, Edit, ExitEarly, ReviewRequest, ReviewStore


def ask(desk, **given):
    """Store a request as a call would, and return its id."""
    store = desk.folder.reviews(create=True)
    values = {"run_id": "order-7", "timeout": None, "scopes": ("arguments", "tool"), **given}
    arguments = values.pop("arguments", {"order": 7, "amount": 14.4})
    (id_,) = store.ask([ReviewRequest("Refunds an order", "refund", arguments, **values)])
    return id_


def answer(desk, id_, decision, client=None, **more):
    shown = desk.get("/api/approval", id=id_)["request"] if client is None else more.pop("shown")
    body = {"id": id_, "decision": decision, "arguments_digest": shown["arguments_digest"], **more}
    return (client or desk.client).post("/api/approval", json=body)


def taken(desk, id_):
    store = desk.folder.reviews()
    return store.take({id_: store.find(id_)})[id_]


def test_a_folder_without_a_store_has_nothing_to_approve(desk):
    assert desk.get("/api/approvals") == {"requests": [], "exists": False}
    assert desk.get("/api/audit") == {"events": [], "more": False, "exists": False}
    assert desk.refused("/api/approval", {"id": "x"}) == (404, "The data folder has no request 'x'")


def test_what_waits_is_listed_oldest_first_and_counted(desk):
    first, second = ask(desk), ask(desk, run_id="order-8")
    assert [each["id"] for each in desk.get("/api/approvals")["requests"]] == [first, second]
    assert desk.get("/api/me")["approvals"] == 2
    assert desk.refused("/api/approval", {"id": "x"})[0] == 404


def test_a_request_without_a_schema_is_shown_as_json(desk):
    id_ = ask(desk)
    shown = desk.get("/api/approval", id=id_)
    assert (shown["form"]["kind"], json.loads(shown["form"]["text"])) == ("json", {"order": 7, "amount": 14.4})
    assert (shown["has_schema"], [event["kind"] for event in shown["audit"]]) == (False, ["asked"])
    assert shown["request"]["may_answer"] is True


@pytest.mark.parametrize(
    ("body", "decision"),
    [
        ({"decision": "approve"}, Continue()),
        ({"decision": "approve", "always": "tool"}, Continue("tool")),
        ({"decision": "edit", "text": '{"order":7,"amount":5}'}, Edit('{"order":7,"amount":5}')),
        ({"decision": "reject", "reason": "too much"}, ExitEarly("too much")),
        ({"decision": "reject"}, ExitEarly("")),
    ],
)
def test_an_answer_reaches_the_call(desk, body, decision):
    id_ = ask(desk)
    receipt = answer(desk, id_, **body).json()
    assert receipt["person"] == desk.get("/api/me")["person"]
    assert taken(desk, id_) == decision


def test_a_form_that_was_edited_is_an_edit_and_one_that_was_not_is_an_approval(desk):
    edited, same = ask(desk), ask(desk, run_id="order-8")
    form = desk.get("/api/approval", id=edited)["form"]
    assert answer(desk, same, "edit", form=form).json()["decision"] == "continue"
    form["text"] = '{"order": 7, "amount": 12.5}'
    assert answer(desk, edited, "edit", form=form).json()["decision"] == "edit"
    assert taken(desk, edited) == Edit('{"order":7,"amount":12.5}')


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"decision": "maybe"}, "'decision' must be 'approve', 'edit' or 'reject'"),
        ({"decision": 1}, "'decision' must be a str, not 1"),
        ({"decision": "approve", "always": "forever"}, "This call can be approved for arguments, tool"),
        ({"decision": "edit", "form": []}, "'form' must be a dict, not []"),
    ],
)
def test_a_wrong_answer_is_refused_and_the_request_stays_open(desk, body, problem):
    id_ = ask(desk)
    refused = answer(desk, id_, **body)
    assert (refused.status_code, refused.json()["error"]) == (400, problem)
    assert [each["id"] for each in desk.get("/api/approvals")["requests"]] == [id_]


def test_a_call_without_scopes_is_approved_once_only(desk):
    refused = answer(desk, ask(desk, scopes=()), "approve", always="tool")
    assert refused.json()["error"] == "This call can be approved for once only"


def test_an_answer_to_other_arguments_than_were_shown_is_refused(desk):
    id_ = ask(desk)
    refused = desk.client.post("/api/approval", json={"id": id_, "decision": "approve", "arguments_digest": "0"})
    assert (refused.status_code, refused.json()["error"]) == (
        409,
        "the person saw other arguments than what is asked about",
    )
    assert desk.client.post("/api/approval", json={"id": id_, "decision": "approve"}).status_code == 409


def test_of_two_people_the_second_is_told_who_was_first(tmp_path):
    people = tmp_path / "people.toml"
    tokens = [add_person(people, name, []) for name in ("ada", "bob")]
    with Desk(tmp_path / "data", people=people) as desk:
        id_ = ask(desk)
        ada, bob = (desk.sign_in(token) for token in tokens)
        shown = [each.get("/api/approval", params={"id": id_}).json()["request"] for each in (ada, bob)]
        first = answer(desk, id_, "approve", ada, shown=shown[0])
        second = answer(desk, id_, "reject", bob, shown=shown[1])
        assert (first.status_code, first.json()["person"]) == (200, "ada")
        assert (second.status_code, second.json()["error"]) == (409, "it was answered already by 'ada'")
        assert taken(desk, id_) == Continue()


def test_the_server_enforces_the_required_role(tmp_path):
    people = tmp_path / "people.toml"
    tokens = {name: add_person(people, name, roles) for name, roles in {"ada": ["admin"], "bob": []}.items()}
    with Desk(tmp_path / "data", people=people) as desk:
        id_ = ask(desk, required_role="admin")
        clients = {name: desk.sign_in(token) for name, token in tokens.items()}
        shown = clients["bob"].get("/api/approval", params={"id": id_}).json()["request"]
        assert shown["may_answer"] is False
        refused = answer(desk, id_, "approve", clients["bob"], shown=shown)
        assert (refused.status_code, refused.json()["error"]) == (
            403,
            "The request requires the role 'admin', which 'bob' does not have",
        )
        assert answer(desk, id_, "approve", clients["ada"], shown=shown).json()["person"] == "ada"
        assert desk.folder.reviews().audit(id_)[-1].role == "admin"


def test_the_user_of_this_machine_has_no_roles(desk):
    id_ = ask(desk, required_role="admin")
    assert answer(desk, id_, "approve").status_code == 403


def test_the_schema_of_a_waiting_call_makes_the_form(desk):
    box = Toolbox([ui_shop.refund], review=desk.interface.reviewer())
    replies = []
    call = ToolCall("refund", ui_shop.REFUND, "c1")
    asking = Thread(target=lambda: replies.append(box.execute(call, run_id="a")))
    asking.start()
    until(lambda: desk.get("/api/approvals")["requests"])
    (request,) = desk.get("/api/approvals")["requests"]
    shown = desk.get("/api/approval", id=request["id"])
    assert shown["has_schema"] is True
    kinds = {field["name"]: field["kind"] for field in shown["form"]["fields"]}
    assert kinds == {"order": "integer", "amount": "number", "to": "union", "reason": "text"}
    assert desk.get("/api/approval/expand", id=request["id"], place="#")["field"]["kind"] == "object"
    assert desk.refused("/api/approval/expand", {"id": request["id"], "place": "#/$defs/None"}) == (
        404,
        "The schema has no such place",
    )
    shown["form"]["fields"][1]["text"] = "12.5"
    answer(desk, request["id"], "edit", form=shown["form"])
    asking.join(60)
    assert replies[0].result.output == "Refunded 12.50 euros of order 7 to a card"


def test_the_audit_comes_in_pages_newest_first(desk):
    ids = [ask(desk, run_id=f"order-{number}") for number in range(3)]
    answer(desk, ids[0], "approve")
    first = desk.get("/api/audit", limit=2)
    second = desk.get("/api/audit", limit=2, before=first["events"][-1]["number"])
    assert [event["kind"] for event in first["events"]] == ["answered", "asked"]
    assert [event["request_id"] for event in second["events"]] == [ids[1], ids[0]]
    assert (first["more"], desk.get("/api/audit", limit=50)["more"]) == (True, False)
    assert [event["kind"] for event in desk.get("/api/audit", request=ids[0])["events"]] == ["answered", "asked"]


def test_secrets_of_a_store_can_come_from_the_environment(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    ReviewStore(tmp_path / "data" / "reviews.db", "a secret of the program").close()
    with Desk(tmp_path / "data") as desk:
        status, problem = desk.refused("/api/approvals")
        assert (status, "another secret" in problem) == (400, True)
        assert desk.get("/api/me")["approvals"] == 0
        monkeypatch.setenv("TOOLSEMBLE_REVIEW_SECRET", "a secret of the program")
        assert desk.get("/api/approvals") == {"requests": [], "exists": True}
