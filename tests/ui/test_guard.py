"""The checks before every request: hosts, origins, bodies, and who is signed in."""

import json
import time

import pytest
from starlette.testclient import TestClient

from helpers.columns import column
from helpers.ui_client import ADDRESS, Desk
from toolsemble._runtime.http_server import Hosts
from toolsemble._ui.guard import HEADERS, LIFETIME, MAX_BODY, MAX_LOGIN, Sessions
from toolsemble._ui.people import LocalUser, PeopleFile, Person, add_person
from toolsemble._vocabulary.errors import ToolConfigurationError


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:7771", 200),
        ("127.0.0.1", 200),
        ("127.1.2.3", 200),
        ("localhost", 200),
        ("LOCALHOST:7771", 200),
        ("localhost.", 200),
        ("desk.localhost:7771", 200),
        ("[::1]", 200),
        ("[::1]:7771", 200),
        ("evil.example", 421),
        ("evil.example:7771", 421),
        ("localhost.evil.example", 421),
        ("evil.example@127.0.0.1", 421),
        ("localhost:80:evil.example", 421),
        ("127.0.0.1/api/login?", 421),
        ("127.0.0.1#", 421),
        ("127.0.0.1 ", 421),
        ("[::1", 421),
        ("10.0.0.5", 421),
        ("192.168.1.2:7771", 421),
        ("0.0.0.0", 421),  # noqa: S104 - the name of a request
        ("", 421),
    ],
)
def test_every_request_needs_a_name_of_this_machine(desk, host, status):
    for path in ("/", "/static/main.mjs", "/api/me"):
        with column(path):
            assert desk.client.get(path, headers={"host": host}).status_code == status


def test_further_names_and_addresses_can_be_allowed():
    hosts = Hosts.build(["Desk.Example.com."], addresses=True)
    shown = ["desk.example.com", "desk.example.com:443", "10.0.0.5", "other.example.com"]
    assert [hosts.accepts(each) for each in shown] == [True, True, True, False]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "none"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": ADDRESS}, 403),
        ({"origin": ADDRESS}, 200),
        ({"origin": "https://127.0.0.1:7771"}, 200),
        ({"origin": "http://127.0.0.1:8000"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "file://127.0.0.1:7771"}, 403),
        ({}, 403),
        ({"sec-fetch-site": "same-origin", "content-type": "text/plain"}, 415),
        ({"sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded"}, 415),
        ({"sec-fetch-site": "same-origin", "content-type": ""}, 415),
        ({"sec-fetch-site": "same-origin", "content-type": "application/json; charset=utf-8"}, 200),
        ({"sec-fetch-site": "same-origin", "content-length": "many"}, 411),
        ({"sec-fetch-site": "same-origin", "content-length": str(MAX_BODY + 1)}, 413),
    ],
)
def test_changes_come_from_the_page_and_are_json(desk, headers, status):
    client = TestClient(desk.app, base_url=ADDRESS, cookies=desk.client.cookies)
    body = json.dumps({"kind": "effect", "key": "k", "happened": True}).encode()
    sent = {"content-type": "application/json", **headers}
    answer = client.post("/api/unknown", content=body, headers=sent)
    assert answer.status_code == (404 if status == 200 else status)  # 404: it passed, and there is no such effect


async def send_endless_body(app, path, headers):
    """Return the status of a request whose body does not end, and the bytes that were taken of it."""
    taken, statuses = 0, []

    async def receive():
        nonlocal taken
        assert taken < 10 * MAX_BODY
        taken += 65_536
        return {"type": "http.request", "body": b" " * 65_536, "more_body": True}

    async def send(message):
        statuses.append(message.get("status"))

    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "scheme": "http"}
    named = {"host": "127.0.0.1:7771", "content-type": "application/json", "content-length": "2", **headers}
    lines = [(name.encode(), value.encode()) for name, value in named.items()]
    await app({**scope, "headers": lines}, receive, send)
    return statuses[0], taken


@pytest.mark.parametrize(
    ("path", "headers", "status", "most"),
    [
        ("/api/login", {"transfer-encoding": "chunked"}, 400, 0),
        ("/api/login", {"content-length": str(MAX_LOGIN + 1)}, 413, 0),
        ("/api/login", {"content-length": "9" * 5000}, 413, 0),
        ("/api/login", {}, 413, 65_536),
        ("/api/unknown", {}, 401, 0),
        ("/api/unknown", {"authorization": "Bearer TOKEN", "transfer-encoding": "chunked"}, 400, 0),
        ("/api/unknown", {"authorization": "Bearer TOKEN"}, 413, MAX_BODY + 65_536),
    ],
)
async def test_a_body_is_counted_whatever_its_headers_say(desk, path, headers, status, most):
    token = (desk.folder.path / "ui.token").read_text()
    sent = {"sec-fetch-site": "same-origin"}
    sent |= {name: value.replace("TOKEN", token) for name, value in headers.items()}
    answered, taken = await send_endless_body(desk.app, path, sent)
    assert (answered, taken <= most) == (status, True)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_other_methods_are_checked_as_changes(desk, method):
    client = TestClient(desk.app, base_url=ADDRESS, cookies=desk.client.cookies)
    assert client.request(method, "/api/me", headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_every_response_has_the_headers_of_a_page_that_runs_nothing_else(desk):
    for path in ("/", "/static/main.mjs", "/static/app.css", "/api/me", "/api/nothing", "/login"):
        headers = desk.client.get(path, follow_redirects=False).headers
        assert {name: headers[name] for name in HEADERS} == HEADERS
    refused = desk.client.get("/", headers={"host": "evil.example"}).headers
    assert refused["content-security-policy"] == HEADERS["Content-Security-Policy"]
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


def test_static_files_are_served_with_their_types_and_nothing_outside_of_them(desk):
    client = desk.new_client()
    kinds = {"/": "text/html", "/static/main.mjs": "text/javascript", "/static/favicon.svg": "image/svg+xml"}
    assert {path: client.get(path).headers["content-type"].partition(";")[0] for path in kinds} == kinds
    for path in ("/static/../people.py", "/static/..%2fpeople.py", "/static/%2e%2e/people.py"):
        assert "class Person" not in client.get(path).text


def test_data_is_for_people_who_are_signed_in(desk):
    stranger = desk.new_client()
    for path in ("/api/me", "/api/runs", "/api/feed", "/api/nothing"):
        assert stranger.get(path).status_code == 401
    assert stranger.get("/").status_code == 200  # the page has no data
    assert stranger.post("/api/unknown", json={}).status_code == 401


def test_the_link_works_once_and_leaves_the_address_bar(tmp_path):
    with Desk(tmp_path) as desk:
        assert desk.sessions.link_token == ""
    sessions = Sessions(tmp_path, LocalUser(), 7771)
    with Desk(tmp_path) as desk:
        desk.sessions._link = sessions.link_token
        first, second = desk.new_client(), desk.new_client()
        answer = first.get("/login", params={"token": sessions.link_token}, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        again = second.get("/login", params={"token": sessions.link_token}, follow_redirects=False)
        assert (again.status_code, again.cookies) == (303, {})
        assert [first.get("/api/me").status_code, second.get("/api/me").status_code] == [200, 401]


def test_a_link_takes_no_token_that_works_more_than_once(tmp_path):
    people = tmp_path / "people.toml"
    token = add_person(people, "ada", [])
    with Desk(tmp_path / "local") as local, Desk(tmp_path / "shared", people=people) as shared:
        for desk, known in ((local, (tmp_path / "local" / "ui.token").read_text()), (shared, token), (shared, "")):
            answer = desk.new_client().get("/login", params={"token": known}, follow_redirects=False)
            assert (answer.status_code, answer.cookies) == (303, {})


def test_the_cookie_is_strict_and_named_by_the_port(tmp_path):
    with Desk(tmp_path) as desk:
        token = (tmp_path / "ui.token").read_text()
        answer = desk.new_client().post("/api/login", json={"token": token})
        cookie = answer.headers["set-cookie"]
    assert cookie.startswith("toolsemble-7771=")
    assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Path=/", f"Max-Age={LIFETIME}"))
    assert "Domain" not in cookie
    assert "Secure" not in cookie


def test_the_cookie_is_secure_behind_tls(desk):
    client = TestClient(desk.app, base_url="https://127.0.0.1:7771", headers={"sec-fetch-site": "same-origin"})
    answer = client.post("/api/login", json={"token": (desk.folder.path / "ui.token").read_text()})
    assert "Secure" in answer.headers["set-cookie"]


def test_a_session_outlives_the_server(tmp_path):
    with Desk(tmp_path) as first, Desk(tmp_path) as second:
        second.client.cookies = first.client.cookies
        assert second.client.get("/api/me").status_code == 200


def test_a_session_of_another_folder_is_worth_nothing(tmp_path):
    with Desk(tmp_path / "one") as first, Desk(tmp_path / "two") as second:
        second.client.cookies = first.client.cookies
        assert second.client.get("/api/me").status_code == 401


def test_sessions_expire(tmp_path):
    now = [time.time()]
    sessions = Sessions(tmp_path, LocalUser(), 1, clock=lambda: now[0])
    cookie = sessions.make_cookie(LocalUser().person)
    assert sessions.find_cookie(cookie) == LocalUser().person
    now[0] += LIFETIME + 1
    assert sessions.find_cookie(cookie) is None


def test_forged_cookies_are_refused(tmp_path):
    sessions = Sessions(tmp_path, LocalUser(), 1)
    cookie = sessions.make_cookie(LocalUser().person)
    text, _, signature = cookie.partition(".")
    other = Sessions(tmp_path / "other", LocalUser(), 1) if (tmp_path / "other").mkdir() is None else None
    forged = [
        "",
        text,
        f"{text}.",
        f"{text}.{'0' * 64}",
        f"{text}.é",
        f"!!!.{signature}",
        f"bnVsbA.{signature}",
        f"WzFd.{signature}",
        f"W1tdLDFd.{signature}",
        other.make_cookie(LocalUser().person),
        sessions.make_cookie(Person("eve")),
    ]
    assert [sessions.find_cookie(each) for each in forged] == [None] * len(forged)


def test_programs_send_the_token_of_the_folder(desk):
    program = TestClient(desk.app, base_url=ADDRESS)
    path = desk.folder.path / "ui.token"
    assert path.stat().st_mode & 0o077 == 0
    right, wrong = {"authorization": f"Bearer {path.read_text()}"}, {"authorization": "Bearer wrong"}
    assert program.get("/api/me", headers=right).status_code == 200
    assert program.get("/api/me", headers=wrong).status_code == 401
    assert program.get("/api/me", headers={"authorization": "Basic YTpi"}).status_code == 401
    assert program.post("/api/unknown", json={}, headers=right).status_code == 400
    assert program.post("/api/unknown", json={}, headers=wrong).status_code == 401


def test_a_wrong_cookie_does_not_help_a_wrong_token(desk):
    assert desk.client.get("/api/me", headers={"authorization": "Bearer wrong"}).status_code == 401


@pytest.mark.parametrize("body", [{}, {"token": 1}, {"token": ""}, {"token": "wrong"}, {"token": "\ud800"}])
def test_wrong_tokens_do_not_sign_in(desk, body):
    answer = desk.new_client().post(
        "/api/login", content=json.dumps(body), headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.cookies) == (403, {})


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 100_000, b"\xff"])
def test_a_body_that_is_not_an_object_is_refused(desk, body):
    sent = {"content-type": "application/json"}
    assert desk.client.post("/api/login", content=body[:MAX_LOGIN], headers=sent).status_code == 400
    assert desk.client.post("/api/unknown", content=body, headers=sent).status_code == 400


def test_nothing_changes_in_a_read_only_server(tmp_path):
    with Desk(tmp_path, read_only=True) as desk:
        assert desk.refused("/api/unknown", body={}) == (
            403,
            "The server was started with --read-only, so nothing can be changed",
        )
        me = desk.get("/api/me")
    assert (me["read_only"], me["may_change"], me["may_operate"]) == (True, False, False)


def test_roles_decide_what_people_may_do(tmp_path):
    people = tmp_path / "people.toml"
    tokens = {
        name: add_person(people, name, roles)
        for name, roles in {"ada": ["admin"], "bob": ["operator"], "eve": ["viewer", "operator"]}.items()
    }
    assert people.stat().st_mode & 0o077 == 0
    with Desk(tmp_path / "data", people=people) as desk:
        seen = {}
        for name, token in tokens.items():
            client = desk.sign_in(token)
            status = client.post("/api/unknown", json={}).status_code
            me = client.get("/api/me").json()
            seen[name] = (me["person"], me["may_change"], me["may_operate"], status)
        stranger = desk.new_client().post("/api/login", json={"token": "wrong"}).status_code
        program = TestClient(desk.app, base_url=ADDRESS, headers={"authorization": f"Bearer {tokens['ada']}"})
        assert program.get("/api/me").json()["person"] == "ada"
    assert seen == {
        "ada": ("ada", True, False, 403),
        "bob": ("bob", True, True, 400),
        "eve": ("eve", False, False, 403),
    }
    assert stranger == 403
    assert not (tmp_path / "data" / "ui.token").exists()


def test_who_is_taken_out_of_the_file_is_out_at_once(tmp_path):
    people = tmp_path / "people.toml"
    token = add_person(people, "ada", [])
    with Desk(tmp_path / "data", people=people) as desk:
        client = desk.sign_in(token)
        assert client.get("/api/me").status_code == 200
        people.write_text("")
        assert client.get("/api/me").status_code == 401
        add_person(people, "ada", ["admin"])  # a new token ends the sessions of the old one
        assert client.get("/api/me").status_code == 401


def test_a_person_is_added_once_with_a_token_that_is_stored_nowhere(tmp_path):
    people = tmp_path / "people.toml"
    token = add_person(people, "ada", ["admin", "admin"])
    add_person(people, "bob@example.com", [])
    assert token not in people.read_text()
    assert PeopleFile(people).find_token(token) == PeopleFile(people).find("ada")
    assert PeopleFile(people).find("ada").roles == ("admin",)
    with pytest.raises(ToolConfigurationError, match="already has a person 'ada'"):
        add_person(people, "ada", [])


@pytest.mark.parametrize("name", ["", "a b", '"', "x" * 65, "-x", "a\nb"])
def test_a_name_is_plain(tmp_path, name):
    with pytest.raises(ToolConfigurationError, match="A person's name is"):
        add_person(tmp_path / "people.toml", name, [])


@pytest.mark.parametrize("role", ["", 'a"b', "x" * 65, "a\nb"])
def test_a_role_is_plain(tmp_path, role):
    with pytest.raises(ToolConfigurationError, match="cannot be a role"):
        add_person(tmp_path / "people.toml", "ada", [role])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[ada", "is not TOML"),
        ("ada = 1", "expected a table"),
        ('["a b"]', "expected a table"),
        ("[ada]\nname = 1", "expected a table"),
        ("[ada]", "token_sha256 must be"),
        ('[ada]\ntoken_sha256 = "0"', "token_sha256 must be"),
        (f'[ada]\ntoken_sha256 = "{"0" * 64}"\nroles = "admin"', "roles must be"),
        (f'[ada]\ntoken_sha256 = "{"0" * 64}"\nroles = [1]', "roles must be"),
    ],
)
def test_a_wrong_file_of_people_is_refused_with_the_place(tmp_path, text, problem):
    path = tmp_path / "people.toml"
    path.write_text(text)
    with pytest.raises(ToolConfigurationError, match=problem):
        PeopleFile(path)


def test_a_missing_file_of_people_is_refused(tmp_path):
    with pytest.raises(ToolConfigurationError, match="cannot be read"):
        PeopleFile(tmp_path / "people.toml")


def test_a_user_without_a_name_can_sign_in(monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: {}["no name"])
    assert LocalUser().person.name == "local user"
    assert LocalUser().find("eve") is None
    assert LocalUser().find_token("") is None
