"""The web interface without a socket: an application on a folder, and clients that are signed in."""

from contextlib import ExitStack
from pathlib import Path

from starlette.testclient import TestClient

from toolsemble._runtime.http_server import Hosts
from toolsemble._ui.guard import Sessions
from toolsemble._ui.interface import DataFolder, Interface, Targets
from toolsemble._ui.people import LocalUser, PeopleFile
from toolsemble._ui.server import build_app

ADDRESS = "http://127.0.0.1:7771"
SAME_ORIGIN = {"sec-fetch-site": "same-origin"}


class Desk:
    """An interface and its clients, to be used in a ``with`` block."""

    def __init__(self, folder, targets=None, *, people=None, read_only=False, hosts=None):
        self.folder = DataFolder(Path(folder))
        self.people = LocalUser() if people is None else PeopleFile(people)
        self.sessions = Sessions(self.folder.path, self.people, 7771)
        self.interface = Interface(self.folder, targets or Targets(), read_only, ADDRESS)
        self.app = build_app(self.interface, self.sessions, hosts or Hosts())
        self._open = ExitStack()

    def __enter__(self):
        self.client = self._open.enter_context(self.new_client())
        if isinstance(self.people, LocalUser):
            self.client.get("/login", params={"token": self.sessions.link_token})
        return self

    def __exit__(self, *error):
        self._open.close()

    def new_client(self):
        """Return a client that is not signed in."""
        return TestClient(self.app, base_url=ADDRESS, headers=SAME_ORIGIN)

    def sign_in(self, token):
        """Return a client of a person."""
        client = self.new_client()
        assert client.post("/api/login", json={"token": token}).status_code == 200
        return client

    def get(self, path, **query):
        """Return the JSON of an answer; it must be a success."""
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path, **body):
        """Return the JSON of an answer to a change; it must be a success."""
        answer = self.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, path, query=None, body=None):
        """Return the status and the reason of a refusal."""
        answer = self.client.get(path, params=query) if body is None else self.client.post(path, json=body)
        return answer.status_code, answer.json()["error"]
