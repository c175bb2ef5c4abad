"""The client that the official conformance suite starts: it connects, and calls every tool, as the scenario wants."""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
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


def sign_in_as_program(url):
    """Return the provider for a program without a person, with a secret or with a key."""
    tokens, client_id = TokenFile(Path(tempfile.mkdtemp()) / "tokens.json"), CONTEXT["client_id"]
    if "private_key_pem" not in CONTEXT:
        return ClientCredentialsOAuthProvider(url, tokens, client_id, CONTEXT["client_secret"])
    key, algorithm = CONTEXT["private_key_pem"], CONTEXT["signing_algorithm"]
    jwt = SignedJWTParameters(issuer=client_id, subject=client_id, signing_key=key, signing_algorithm=algorithm)
    return PrivateKeyJWTOAuthProvider(url, tokens, client_id, jwt.create_assertion_provider())


def sign_in_by_company(url):
    """Return the provider for a person whom a company has signed in: its token is exchanged for an assertion."""
    tokens = TokenFile(Path(tempfile.mkdtemp()) / "tokens.json")
    metadata = httpx2.get(urljoin(url, "/.well-known/oauth-protected-resource/mcp"), timeout=60).json()

    async def exchange(audience, resource):
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "subject_token": CONTEXT["idp_id_token"],
            "client_id": CONTEXT["idp_client_id"],
            "audience": audience,
            "resource": resource,
        }
        async with httpx2.AsyncClient(timeout=60) as http:
            return (await http.post(CONTEXT["idp_token_endpoint"], data=form)).json()["access_token"]

    return IdentityAssertionOAuthProvider(
        url,
        tokens,
        CONTEXT["client_id"],
        CONTEXT["client_secret"],
        issuer=metadata["authorization_servers"][0],
        assertion_provider=exchange,
        token_endpoint_auth_method="client_secret_basic",  # noqa: S106 - the name of a method
    )


def choose_auth(url):
    """Return the provider that the scenario is about."""
    if SCENARIO.startswith("auth/client-credentials"):
        return sign_in_as_program(url)
    if SCENARIO == "auth/enterprise-managed-authorization":
        return sign_in_by_company(url)
    return sign_in(url) if SCENARIO.startswith("auth/") else None


def sample(schema):
    """Return arguments that fit a schema."""
    properties = schema.get("properties", {})
    return {name: SAMPLES.get(each.get("type"), "text") for name, each in properties.items()}


def list_calls(client):
    """Yield the calls that the scenario asks for; by default one of each tool."""
    if "toolCalls" in CONTEXT:
        yield from (ToolCall(call["name"], call["arguments"]) for call in CONTEXT["toolCalls"])
        return
    schemas = {tool.name: tool.remote.input_schema for tool in client}
    for name, schema in schemas.items():
        # The suite compares the schema that this tool is sent with the one that it has listed.
        echo = {"schema": schemas["json_schema_2020_12_tool"]} if name == "json_schema_echo" else {}
        yield ToolCall(name, sample(schema) | echo)


def main():
    url = sys.argv[-1]
    client = MCPClient.http(url, auth=choose_auth(url), review=Person(), timeout=60, connect_timeout=100)
    with client:
        box = Toolbox([*client])
        for call in list_calls(client):
            print(call.name, box.execute(call).text, file=sys.stderr)  # noqa: T201 - the suite shows it


main()
