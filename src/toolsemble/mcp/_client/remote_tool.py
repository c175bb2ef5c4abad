"""A tool of a server as a tool of this library."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from toolsemble._engine.definition import ToolDefinition, check_description, typed_definition
from toolsemble._schema.json_schema import SchemaArguments
from toolsemble._tools.schema import SchemaTool
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.specification import check_name, read_metadata
from toolsemble.mcp._client.cleaning import (
    MAX_DESCRIPTION,
    MAX_TITLE,
    PlainArguments,
    RemoteDefinition,
    clean_schema,
    clean_text,
)
from toolsemble.mcp._client.options import DESTRUCTIVE, Options
from toolsemble.mcp._client.process_group import LOGGER
from toolsemble.mcp._client.results import OutputCheck, build_output_check
from toolsemble.review._rules.pattern import matches_name

if TYPE_CHECKING:
    from toolsemble.catalog._lock.lock import ToolLock
    from toolsemble.catalog._lock.pins import PinnedTool


class RemoteTool(SchemaTool):
    """A tool that runs on an MCP server; a call is checked, gated, limited and recorded like any other."""

    def __init__(self, name: str, remote: RemoteDefinition, connection: Any, options: Options) -> None:
        description = (
            clean_text(remote.description, MAX_DESCRIPTION)
            or clean_text(remote.title, MAX_TITLE)
            or f"The tool {name} of the MCP server {options.name}"
        )
        self.remote = remote
        """The definition of the server, as it was sent."""
        settings = _tool_settings(name, remote, options)
        super().__init__(name, description, self._call_remote, remote.input_schema, **settings)
        self._connection = connection
        self._check: OutputCheck | None = None
        self._name = name
        check = build_output_check(name, remote.output_schema)
        if isinstance(check, str):
            LOGGER.warning("The results of '%s' are not checked: %s", name, check)
        else:
            self._check = check

    def _build_arguments(self, parameters: Any) -> SchemaArguments:
        if self.remote.is_plain:
            return PlainArguments(self.name, parameters)
        return SchemaArguments(self.name, clean_schema(parameters))

    def _call_remote(self, arguments: dict[str, Any]) -> Any:
        """Return the result of a call, or a coroutine of it where an event loop runs."""
        return self._connection.call_tool(self, arguments, self.context, self._check)

    @property
    def repeatable(self) -> bool:
        """Whether a call may be sent twice."""
        return self.effects == "read" or self.idempotent

    @property
    def listed_output(self) -> dict[str, Any] | None:
        """The schema of its results, for a server that passes it on; None if there is none, or it is not checked."""
        schema = self.remote.output_schema
        is_object = isinstance(schema, dict) and schema.get("type") == "object"
        return clean_schema(schema) if is_object and self._check is not None else None

    @property
    def listed_hints(self) -> dict[str, bool]:
        """The hints that may be passed on: those that make clients more careful."""
        return {"destructiveHint": True} if self.remote.hints.get("destructiveHint") is True else {}

    @property
    def lock_source(self) -> str:
        """The identity of the server in a lock file."""
        return str(self._connection.source)

    @cached_property
    def pin(self) -> PinnedTool:
        """The definition of the server, as a lock compares it."""
        from toolsemble.catalog._lock.pins import pin_tool

        return pin_tool(self.remote.to_listed())

    def use_lock(self, lock: ToolLock) -> None:
        """Check the tools of the server with a lock, now and at each change, unless the client has one."""
        if self._connection.lock is None:
            self._connection.lock_now(lock)

    def check_lock(self) -> None:
        """Raise ToolExecutionError if the lock of the client refuses the tool."""
        if self._connection.lock is not None:
            self._connection.lock.check_call(self.remote.name, self.pin.digest)

    def find_lock_refusal(self, name: str) -> str:
        """Return why the lock of the client hides another tool of the server; "" if it does not."""
        return str(self._connection.hidden.get(name, ""))

    def check_settings(self) -> None:
        """Raise ToolDefinitionError if the tool cannot be defined."""
        check_description(check_name(self.name), self.description)
        if self._connection.options.settings:  # without them, nothing else can be wrong
            self._define()

    def _define(self) -> ToolDefinition:
        # Async: a call waits in the caller's event loop, or in its thread, but never needs a thread of its own.
        definition = typed_definition(
            self.name, self.description, self.run, self._arguments, awaits=True, **self._declared()
        )
        if self._connection.lock is None:
            return definition
        from toolsemble.catalog._lock.lock import add_check

        return add_check(definition, self.pin.digest, self.check_lock)


def build_remote_tool(name: str, remote: RemoteDefinition, connection: Any, options: Options) -> RemoteTool | None:
    """Return the tool for a definition; None, with a warning in the log, if the definition cannot be used."""
    try:
        tool = RemoteTool(name, remote, connection, options)
        tool.check_settings()
    except ToolDefinitionError as problem:
        LOGGER.warning("A tool of %s is left out: %.100r: %s", options.name, remote.name, problem)
        return None
    return tool


def _tool_settings(name: str, remote: RemoteDefinition, options: Options) -> dict[str, Any]:
    """Return the settings of a tool: those of the client, as far as they fit the tool, and what its hints say."""
    title = clean_text(remote.title, MAX_TITLE)
    origin = {"server": options.name, "name": remote.name, "title": title}
    settings = {**_read_hints(remote, options), **options.settings}
    settings["metadata"] = {**read_metadata("MCPClient", options.settings.get("metadata")), "mcp": origin}
    reads = settings.get("effects") == "read"
    if not reads:
        settings.pop("cache", None)
    if not (reads or settings.get("idempotent")):
        settings.pop("retries", None)
    if reads:
        settings.pop("idempotency", None)
    if (gate := _needs_approval(name, remote, options)) is not False:
        settings["requires_approval"] = gate
    return settings


def _read_hints(remote: RemoteDefinition, options: Options) -> dict[str, Any]:
    """Return what the hints say, if they are believed."""
    if not options.trust_hints:
        return {}
    believed: dict[str, Any] = {"idempotent": remote.hints.get("idempotentHint") is True}
    if remote.hints.get("readOnlyHint") is True:
        believed["effects"] = "read"
    elif is_destructive(remote):
        believed["effects"] = "irreversible" if remote.hints.get("destructiveHint") is True else None
    else:
        believed["effects"] = "write"
    return believed


def is_destructive(remote: RemoteDefinition) -> bool:
    """Return whether a tool may destroy something, by its hints; by the specification, so may one without hints."""
    if remote.hints.get("destructiveHint") is True:
        return True
    return remote.hints.get("destructiveHint") is not False and remote.hints.get("readOnlyHint") is not True


def _needs_approval(name: str, remote: RemoteDefinition, options: Options) -> Any:
    approve = options.approve
    if approve is None:
        return False
    if approve == DESTRUCTIVE:
        # A server that says "read-only" and "destructive" at once is not believed the first.
        return is_destructive(remote)
    if callable(approve):
        return approve
    return any(matches_name(pattern, each) for pattern in approve for each in (name, remote.name))
