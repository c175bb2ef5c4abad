"""The client that the official conformance suite starts: it connects, and calls every tool, as the scenario wants."""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata

from toolsemble import Toolbox, ToolCall
from toolsemble.mcp import MCPClient, TokenFile
from toolsemble.review import Continue

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
CALLBACK = "http://localhost:3000/callback"
METADATA_URL = "https://conformance-test.local/client-metadata.json"
SAMPLES = {"string": "text", "integer": 5, "number": 3, "boolean": True, "array": [], "object": {}, "null": None}


class Person:
    """Accepts every form as it is."""

    def review(self, request):
        return Continue()


class Browser:
    """Signs in without a person: the suite's authorization page redirects at once."""

    async def redirect(self, url):
        async with httpx2.AsyncClient(timeout=60) as http:
            response = await http.get(url, follow_redirects=False)
        answer = parse_qs(urlsplit(response.headers["location"]).query)
        self.result = {key: answer.get(key, [None])[0] for key in ("code", "state", "iss")}

    async def callback(self):
        return AuthorizationCodeResult(**self.result)


def sign_in(url):
    """Return the OAuth provider, with the registration that the scenario hands over."""
    tokens = TokenFile(Path(tempfile.mkdtemp()) / "tokens.json")
    if "client_id" in CONTEXT:
        known = OAuthClientInformationFull(
            client_id=CONTEXT["client_id"],
            client_secret=CONTEXT.get("client_secret"),
            redirect_uris=[CALLBACK],
            token_endpoint_auth_method="client_secret_basic",  # noqa: S106 - the name of a method
        )
        asyncio.run(tokens.set_client_info(known))
    browser = Browser()
    metadata = OAuthClientMetadata(
        client_name="toolsemble",
        redirect_uris=[CALLBACK],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
    )
    return OAuthClientProvider(
        url, metadata, tokens, browser.redirect, browser.callback, client_metadata_url=METADATA_URL
    )


def sample(schema):
    """Return arguments that fit a schema."""
    properties = schema.get("properties", {})
    return {name: SAMPLES.get(each.get("type"), "text") for name, each in properties.items()}


def main():
    url = sys.argv[-1]
    auth = sign_in(url) if SCENARIO.startswith("auth/") else None
    client = MCPClient.http(url, auth=auth, review=Person(), timeout=20)
    with client:
        box = Toolbox([*client])
        for call in CONTEXT.get("toolCalls", []):
            print(box.execute(ToolCall(call["name"], call["arguments"])).text, file=sys.stderr)  # noqa: T201 - the suite shows it
        for tool in client if "toolCalls" not in CONTEXT else ():
            arguments = sample(tool.remote.input_schema)
            print(tool.name, box.execute(ToolCall(tool.name, arguments)).text, file=sys.stderr)  # noqa: T201 - as above


main()
