"""A server written with the low-level class of the official SDK; run as a program it speaks on stdio."""

import asyncio
import os

import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged

PNG = "iVBORw0KGgo="
ANY = {"type": "object", "properties": {"text": {"type": "string"}}}
HOUR = {"type": "object", "properties": {"hour": {"type": "integer"}}, "required": ["hour"]}
NAMES = [
    "echo", "contents", "structured", "wrong_structured", "no_structured", "list_structured", "progress", "ask",
    "open_url", "capabilities", "headers", "hang", "change", "meta", "fail", "ask_again", "pid",
]  # fmt: skip
SCHEMAS = {
    "structured": HOUR,
    "wrong_structured": HOUR,
    "no_structured": HOUR,
    "list_structured": {"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}},
}
FORM = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}},
    "required": ["city"],
}
bus = InMemorySubscriptionBus()
added = []


async def list_tools(context, params):
    return types.ListToolsResult(
        tools=[
            types.Tool(name=name, description=name, input_schema=ANY, output_schema=SCHEMAS.get(name))
            for name in [*NAMES, *added]
        ]
    )


def say(text, **more):
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], **more)


async def call_contents(context, params):
    resource = types.TextResourceContents(uri="file:///a.txt", text="inside")
    blob = types.BlobResourceContents(uri="file:///b.bin", blob="AAEC", mime_type="application/x-bin")
    return types.CallToolResult(
        content=[
            types.TextContent(type="text", text="first"),
            types.ImageContent(type="image", data=PNG, mime_type="image/png"),
            types.AudioContent(type="audio", data="AAAA", mime_type="audio/wav"),
            types.EmbeddedResource(type="resource", resource=resource),
            types.EmbeddedResource(type="resource", resource=blob),
            types.ResourceLink(type="resource_link", uri="https://example.com/c", name="c", description="The c"),
        ]
    )


async def call_progress(context, params):
    for step in (1, 2, 4):
        await context.session.report_progress(step, 4, f"step {step}")
    return say("done")


async def call_ask(context, params):
    answers = params.input_responses
    if not answers:
        asked = types.ElicitRequest(params=types.ElicitRequestFormParams(message="Which city?", requested_schema=FORM))
        return types.InputRequiredResult(input_requests={"city": asked})
    return say(answers["city"].model_dump_json(include={"action", "content"}))


async def call_ask_again(context, params):
    asked = types.ElicitRequest(params=types.ElicitRequestFormParams(message="Which city?", requested_schema=FORM))
    return types.InputRequiredResult(input_requests={"city": asked})


async def call_pid(context, params):
    return say(str(os.getpid()))


async def call_open_url(context, params):
    if not params.input_responses:
        url = types.ElicitRequestURLParams(message="Sign in", url="https://example.com/sign-in")
        return types.InputRequiredResult(input_requests={"url": types.ElicitRequest(params=url)})
    return say(params.input_responses["url"].action)


async def call_capabilities(context, params):
    return say(str(context.session.client_capabilities.elicitation is not None))


async def call_hang(context, params):
    await asyncio.sleep(3600)


async def call_change(context, params):
    added.append(params.arguments["text"])
    await bus.publish(ToolsListChanged())
    return say("changed")


async def call_headers(context, params):
    headers = context.request.headers
    return say(f"{headers.get('authorization')} {headers.get('x-team')}")


CALLS = {
    "structured": lambda: types.CallToolResult(content=[], structured_content={"hour": 12}),
    "wrong_structured": lambda: types.CallToolResult(content=[], structured_content={"hour": "noon"}),
    "no_structured": lambda: say("no"),
    "list_structured": lambda: types.CallToolResult(content=[], structured_content=[1, 2]),
    "meta": lambda: say("m", _meta={"io.modelcontextprotocol/x": 1, "com.example/y": 2}),
    "fail": lambda: types.CallToolResult(content=[], is_error=True),
}


async def call_tool(context, params):
    if params.name in CALLS:
        return CALLS[params.name]()
    handler = globals().get(f"call_{params.name}")
    return await handler(context, params) if handler else say((params.arguments or {}).get("text", ""))


async def list_prompts(context, params):
    argument = types.PromptArgument(name="topic", description="What about", required=True)
    return types.ListPromptsResult(prompts=[types.Prompt(name="poem", arguments=[argument]), types.Prompt(name="bye")])


async def get_prompt(context, params):
    text = types.TextContent(type="text", text=f"Write about {(params.arguments or {}).get('topic')}.")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])


async def list_resources(context, params):
    if params and params.cursor:
        return types.ListResourcesResult(resources=[types.Resource(uri="memo://2", name="second")])
    first = types.Resource(uri="memo://1", name="first", description="The first", mime_type="text/plain")
    return types.ListResourcesResult(resources=[first], next_cursor="page 2")


async def read_resource(context, params):
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=f"at {params.uri}")])


def build(**more):
    return Server(
        "sample",
        version="1",
        instructions="Handle with care.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
        on_subscriptions_listen=ListenHandler(bus),
        **more,
    )


async def main():
    server = build()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
