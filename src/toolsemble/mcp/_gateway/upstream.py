"""A server behind the gateway: its resources, prompts and completion under names that belong to it alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import mcp_types
from mcp.shared.exceptions import MCPError

from toolsemble._engine.context import ToolContext
from toolsemble.mcp._client.cleaning import MAX_DESCRIPTION, MAX_TITLE, clean_text
from toolsemble.mcp._client.client import MCPClient
from toolsemble.mcp._client.session import list_pages

_LONGEST_URI = 2000
_NOT_A_SCHEME = re.compile("[^a-z0-9-]")


class ClientUpstream:
    """The resources and prompts of a client's server, as a gateway passes them on.

    :param name: the name of the server in the gateway
    :param resources: whether resources are passed on, or patterns of their URIs
    :param prompts: whether prompts are passed on, or patterns of their names

    >>> upstream = ClientUpstream("my_docs", MCPClient.http("https://docs.example.com/mcp"))
    >>> upstream.uri_prefix, upstream.prompt_prefix
    ('my-docs+', 'my_docs_')
    """

    def __init__(
        self,
        name: str,
        client: MCPClient,
        *,
        resources: tuple[str, ...] | bool = True,
        prompts: tuple[str, ...] | bool = True,
    ) -> None:
        self.name = name
        self.uri_prefix = make_uri_prefix(name)
        self.prompt_prefix = f"{name}_"
        self._client = client
        self._wanted = {"resources": resources, "prompts": prompts}

    def offers(self, kind: str) -> bool:
        """Return whether there are ``"resources"`` or ``"prompts"`` to pass on."""
        return self._wanted[kind] is not False and getattr(self._client.capabilities, kind, None) is not None

    async def list_resources(self) -> list[Any]:
        """Return the resources, with the URIs that they have at the gateway."""
        found = await self._list(lambda sdk: sdk.list_resources, "resources")
        return [self._show(each, uri=self.uri_prefix + each.uri) for each in found if self._passes_uri(each.uri)]

    async def list_templates(self) -> list[Any]:
        """Return the templates of resources."""
        found = await self._list(lambda sdk: sdk.list_resource_templates, "resource_templates")
        return [
            self._show(each, uri_template=self.uri_prefix + each.uri_template)
            for each in found
            if self._passes_uri(each.uri_template)
        ]

    async def list_prompts(self) -> list[mcp_types.Prompt]:
        """Return the prompts, with the names that they have at the gateway."""
        found = await self._list(lambda sdk: sdk.list_prompts, "prompts")
        return [self._show_prompt(each) for each in found if self._passes("prompts", each.name)]

    async def read(self, uri: str, context: ToolContext) -> mcp_types.ReadResourceResult:
        """Return the contents of a resource."""
        own = uri.removeprefix(self.uri_prefix)
        if not self._passes_uri(own):
            raise MCPError(mcp_types.INVALID_PARAMS, "Unknown resource", {"uri": uri})
        answer = await self._client.request(lambda sdk: sdk.read_resource(own, cache_mode="bypass"), context=context)
        contents = [each.model_copy(update={"uri": self.uri_prefix + each.uri}) for each in answer.contents]
        return mcp_types.ReadResourceResult(contents=contents)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str], context: ToolContext
    ) -> mcp_types.GetPromptResult:
        """Return the messages of a prompt."""
        own = name.removeprefix(self.prompt_prefix)
        if not self._passes("prompts", own):
            raise MCPError(mcp_types.INVALID_PARAMS, f"Unknown prompt: {clean_text(name, MAX_TITLE)}")
        answer = await self._client.request(lambda sdk: sdk.get_prompt(own, dict(arguments)), context=context)
        messages = [each.model_copy(update={"content": self._rewrite(each.content)}) for each in answer.messages]
        return mcp_types.GetPromptResult(description=_clean(answer.description, MAX_DESCRIPTION), messages=messages)

    async def complete(self, params: mcp_types.CompleteRequestParams) -> mcp_types.CompleteResult:
        """Return values for an argument of a prompt or a template; none if the server has no completion."""
        if self._client.capabilities is None or self._client.capabilities.completions is None:
            return mcp_types.CompleteResult(completion=mcp_types.Completion(values=[], total=0, has_more=False))
        reference = params.ref
        own: Any
        if isinstance(reference, mcp_types.PromptReference):
            own = mcp_types.PromptReference(name=reference.name.removeprefix(self.prompt_prefix))
        else:
            own = mcp_types.ResourceTemplateReference(uri=reference.uri.removeprefix(self.uri_prefix))
        argument = {"name": params.argument.name, "value": params.argument.value}
        known = None if params.context is None else params.context.arguments
        answer = await self._client.request(lambda sdk: sdk.complete(own, argument, known))
        return mcp_types.CompleteResult(completion=answer.completion)

    async def _list(self, choose: Callable[[Any], Any], key: str) -> list[Any]:
        options = self._client.options

        async def fetch(sdk: Any) -> list[Any]:
            return [each async for page in list_pages(choose(sdk), key, options) for each in page]

        found: list[Any] = await self._client.request(fetch)
        return found

    def _passes(self, kind: str, name: str) -> bool:
        wanted = self._wanted[kind]
        if isinstance(wanted, bool):
            return wanted and _is_clean(name, MAX_TITLE)
        return _is_clean(name, MAX_TITLE) and any(fnmatchcase(name, pattern) for pattern in wanted)

    def _passes_uri(self, uri: str) -> bool:
        wanted = self._wanted["resources"]
        if isinstance(wanted, bool):
            return wanted and _is_clean(uri, _LONGEST_URI)
        return _is_clean(uri, _LONGEST_URI) and any(fnmatchcase(uri, pattern) for pattern in wanted)

    def _show(self, item: Any, **names: str) -> Any:
        """Return a resource or a template with cleaned texts, and without what clients would load or trust."""
        texts = {"title": _clean(item.title, MAX_TITLE), "description": _clean(item.description, MAX_DESCRIPTION)}
        name = clean_text(item.name, MAX_TITLE)
        return item.model_copy(update={**texts, **names, "name": name, "icons": None, "meta": None})

    def _show_prompt(self, prompt: mcp_types.Prompt) -> mcp_types.Prompt:
        arguments = [
            each.model_copy(update={"description": _clean(each.description, MAX_DESCRIPTION)})
            for each in prompt.arguments or ()
        ]
        shown: mcp_types.Prompt = self._show(prompt, name=prompt.name)
        return shown.model_copy(update={"name": self.prompt_prefix + prompt.name, "arguments": arguments or None})

    def _rewrite(self, content: Any) -> Any:
        """Return the contents of a message, with the URIs that resources have at the gateway."""
        if content.type == "resource_link":
            return content.model_copy(update={"uri": self.uri_prefix + content.uri, "icons": None, "meta": None})
        if content.type == "resource":
            inner = content.resource.model_copy(update={"uri": self.uri_prefix + content.resource.uri})
            return content.model_copy(update={"resource": inner})
        return content


def make_uri_prefix(name: str) -> str:
    """Return the beginning of the URIs of a server: a part of their scheme.

    >>> make_uri_prefix("My_Docs"), make_uri_prefix("2nd")
    ('my-docs+', 's2nd+')
    """
    scheme = _NOT_A_SCHEME.sub("-", name.lower())
    return f"{scheme}+" if scheme[0].isalpha() else f"s{scheme}+"


def _clean(text: str | None, limit: int) -> str | None:
    return clean_text(text, limit) or None


def _is_clean(text: str, limit: int) -> bool:
    return clean_text(text, limit) == text
