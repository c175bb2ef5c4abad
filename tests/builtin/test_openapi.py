"""Tests of tools from OpenAPI documents."""

import copy
import json
import sys

import pytest

from helpers.sample_tools import Reviewer
from helpers.web_server import serving
from toolsemble import Continue, Edit, Toolbox, ToolCall, ToolDefinitionError
from toolsemble.builtin import HttpTool

pytestmark = pytest.mark.slow

PET = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "integer", "format": "int64", "readOnly": True},
        "name": {"type": "string", "minLength": 1, "xml": {"name": "n"}, "example": "Rex"},
        "born": {"type": "string", "format": "date"},
        "age": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 99, "exclusiveMaximum": False},
        "owner": {"$ref": "#/components/schemas/Person"},
        "kind": {"oneOf": [{"type": "string"}, {"type": "integer"}], "discriminator": {"propertyName": "x"}},
    },
    "additionalProperties": False,
}
PERSON = {
    "type": "object",
    "properties": {
        "email": {"type": "string", "format": "email", "nullable": True},
        "friends": {"type": "array", "items": {"$ref": "#/components/schemas/Person"}},
        "extra": {"type": "object", "additionalProperties": {"type": "string"}},
        "any": True,
    },
}
DOCUMENT = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "https://{region}.pets.example/v1/", "variables": {"region": {"default": "eu"}}}],
    "paths": {
        "/pets": {
            "parameters": [
                {"name": "limit", "in": "query", "schema": {"type": "string"}},
                {"$ref": "#/components/parameters/Trace"},
            ],
            "get": {
                "operationId": "listPets",
                "summary": "Lists pets.",
                "description": "Newest first.",
                "parameters": [
                    {"name": "limit", "in": "query", "description": "How many", "schema": {"type": "integer"}},
                    {"name": "tags[]", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {
                        "name": "ids",
                        "in": "query",
                        "explode": False,
                        "schema": {"type": "array", "items": {"type": "integer"}},
                    },
                    {"name": "where", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}},
                    {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
                    {"name": "session", "in": "cookie", "schema": {"type": "string"}},
                ],
            },
            "post": {
                "requestBody": {"$ref": "#/components/requestBodies/Pet"},
                "parameters": [{"name": "dry run", "in": "query", "schema": {"type": "boolean"}}],
            },
        },
        "/pets/{pet.id}/notes": {
            "put": {
                "operationId": "write note!",
                "parameters": [{"name": "pet.id", "in": "path", "required": True, "schema": {"type": "string"}}],
                "requestBody": {"required": True, "description": "The note", "content": {"text/plain": {"schema": {}}}},
            },
            "delete": {
                "operationId": "write note!",
                "parameters": [{"name": "pet.id", "in": "path", "required": True}],
            },
        },
        "/login": {
            "post": {
                "operationId": "login",
                "requestBody": {"content": {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}}},
            }
        },
    },
    "components": {
        "schemas": {"Pet": PET, "Person": PERSON},
        "parameters": {"Trace": {"name": "X-Trace-Id", "in": "header", "schema": {"type": "string"}}},
        "requestBodies": {
            "Pet": {"content": {"application/json; charset=utf-8": {"schema": {"$ref": "#/components/schemas/Pet"}}}}
        },
    },
}


def change_document(change):
    document = copy.deepcopy(DOCUMENT)
    change(document)
    return document


def parameter(**fields):
    return change_document(
        lambda it: it["paths"]["/pets"]["get"].update(parameters=[{"name": "x", "in": "query", **fields}])
    )


@pytest.fixture
def web():
    with serving() as web:
        yield web


EDIT_OF_ALL = "An edit replaces all arguments, as one JSON object."


def load_tools(**settings):
    return {tool.name: tool for tool in HttpTool.from_openapi(DOCUMENT, **settings)}


def call(web, name, arguments, **settings):
    made = load_tools(base_url=web.url("/v1"), allow_hosts=["127.0.0.1"], **settings)
    return Toolbox(made.values()).execute(ToolCall(name, json.dumps(arguments))).result


def test_operations_become_tools_with_valid_names():
    assert {name: tool.description for name, tool in load_tools().items()} == {
        "listPets": "Lists pets. Newest first.",
        "post_pets": "POST /pets",
        "write_note": "PUT /pets/{pet.id}/notes",
        "write_note_2": "DELETE /pets/{pet.id}/notes",
        "login": "POST /login",
    }


def test_document_may_be_json_text_with_selected_operations():
    made = HttpTool.from_openapi(json.dumps(DOCUMENT), only=["login", "listPets"])
    assert [tool.name for tool in made] == ["login", "listPets"]


def test_operation_parameters_are_typed():
    parameters = Toolbox([load_tools()["listPets"]]).specifications[0].parameters
    assert parameters["properties"] == {
        "limit": {"type": "integer", "description": "How many"},
        "X-Trace-Id": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "ids": {"type": "array", "items": {"type": "integer"}},
        "where": {"type": "object"},
    }
    assert parameters["additionalProperties"] is False


def test_body_has_schema_of_document():
    schema = load_tools()["post_pets"]._arguments.schema
    assert schema["properties"]["body"] == {"$ref": "#/$defs/components_schemas_Pet"}
    pet, person = schema["$defs"]["components_schemas_Pet"], schema["$defs"]["components_schemas_Person"]
    assert pet == {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "born": {"type": "string", "format": "date"},
            "age": {"type": "number", "exclusiveMinimum": 0, "maximum": 99},
            "owner": {"$ref": "#/$defs/components_schemas_Person"},
            "kind": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        },
        "additionalProperties": False,
    }
    assert person["properties"] == {
        "email": {"anyOf": [{"type": "string", "format": "email"}, {"type": "null"}]},
        "friends": {"type": "array", "items": {"$ref": "#/$defs/components_schemas_Person"}},
        "extra": {"type": "object", "additionalProperties": {"type": "string"}},
        "any": {},
    }


def test_arguments_are_sent_in_declared_places(web):
    web.answers["/v1/pets"] = b"done"
    arguments = {"limit": 5, "tags": ["a", "b c"], "ids": [1, 2], "where": {"a": 1}, "X-Trace-Id": "t-1"}
    assert call(web, "listPets", arguments, headers={"X-Own": "1"}, auth="the-token").output == "done"
    method, path, headers, body = web.requests[0]
    assert (method, path, body) == (
        "GET",
        "/v1/pets?limit=5&tags%5B%5D=a&tags%5B%5D=b%20c&ids=1,2&where=%7B%22a%22%3A1%7D",
        b"",
    )
    assert (headers["X-Trace-Id"], headers["X-Own"], headers["Authorization"]) == ("t-1", "1", "Bearer the-token")


def test_json_body_is_validated_and_sent(web):
    web.answers["/v1/pets"] = b"done"
    assert call(web, "post_pets", {"dry_run": True, "body": {"name": "Rex"}}).output == "done"
    method, path, headers, body = web.requests[0]
    assert (method, path, headers["Content-Type"], body) == (
        "POST",
        "/v1/pets?dry%20run=true",
        "application/json",
        b'{"name":"Rex"}',
    )
    assert "body.name" in call(web, "post_pets", {"body": {"born": "2024-01-01"}}).error_message
    assert len(web.requests) == 1


def test_omitted_body_is_empty(web):
    web.answers["/v1/pets"] = b"done"
    assert call(web, "post_pets", {}).output == "done"
    assert web.requests[0][3] == b""


def test_text_body_with_path_argument(web):
    web.answers["/v1/pets/a%2Fb/notes"] = b"done"
    assert call(web, "write_note", {"pet_id": "a/b", "body": '{"is": "text"}'}).output == "done"
    assert web.requests[0][2]["Content-Type"] == "text/plain"
    assert web.requests[0][3] == b'{"is": "text"}'
    assert call(web, "write_note_2", {"pet_id": "a/b"}).output == "done"
    assert call(web, "write_note_2", {"pet_id": ".."}).error_message == "pet_id: '..' is not allowed in a URL"


@pytest.mark.parametrize(
    ("given", "body"), [({"user": "ada", "age": 7, "x": "a&b"}, b"user=ada&age=7&x=a%26b"), ({}, b"")]
)
def test_form_body_is_url_encoded(web, given, body):
    web.answers["/v1/login"] = b"done"
    assert call(web, "login", {"body": given}).output == "done"
    assert (web.requests[0][2]["Content-Type"], web.requests[0][3]) == ("application/x-www-form-urlencoded", body)


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "€", "\0"])
def test_argument_cannot_add_headers(web, value):
    result = call(web, "listPets", {"X-Trace-Id": value})
    assert result.error_message == "X-Trace-Id: line breaks and characters outside Latin-1 are not allowed in a header"
    assert web.requests == []


@pytest.mark.parametrize("name", ["X-Trace-Id", "x-trace-id", "X-TRACE-ID"])
def test_configured_header_is_not_a_parameter(web, name):
    web.answers["/v1/pets"] = b"done"
    made = load_tools(headers={name: "mine"})["listPets"]
    assert "X-Trace-Id" not in Toolbox([made]).specifications[0].parameters["properties"]
    call(web, "listPets", {"X-Trace-Id": "theirs"}, headers={name: "mine"})
    assert [value for each, value in web.requests[0][2].items() if each.lower() == "x-trace-id"] == ["mine"]


@pytest.mark.parametrize(
    "name",
    [
        *("Host", "host", "Transfer-Encoding", "Content-Length", "Connection", "Upgrade", "TE", "Expect"),
        *("Cookie", "COOKIE", "Proxy-Authorization", "authorization", "Content-Type", "Accept", "Accept-Encoding"),
    ],
)
def test_connection_and_session_headers_are_not_parameters(web, name):
    web.answers["/v1/pets"] = b"done"
    document = parameter(**{"name": name, "in": "header", "schema": {"type": "string"}})
    tool = HttpTool.from_openapi(document, only=["listPets"], base_url=web.url("/v1"), allow_hosts=["127.0.0.1"])[0]
    assert name not in Toolbox([tool]).specifications[0].parameters["properties"]
    Toolbox([tool]).execute(ToolCall("listPets", {name: "evil"}))
    assert "evil" not in str(web.requests)


LIST, OBJECT = ["a,b", "c d"], {"R": 100, "G": "x&y"}


@pytest.mark.parametrize(
    ("place", "how", "value", "written"),
    [
        ("query", {}, "a b", "q=a%20b"),
        ("query", {}, LIST, "q=a%2Cb&q=c%20d"),
        ("query", {}, OBJECT, "R=100&G=x%26y"),
        ("query", {}, [], ""),
        ("query", {}, {}, ""),
        ("query", {"explode": False}, LIST, "q=a%2Cb,c%20d"),
        ("query", {"explode": False}, OBJECT, "q=R,100,G,x%26y"),
        ("query", {"explode": False}, [], ""),
        ("query", {"style": "spaceDelimited"}, LIST, "q=a%2Cb%20c%20d"),
        ("query", {"style": "pipeDelimited"}, LIST, "q=a%2Cb%7Cc%20d"),
        ("query", {"style": "pipeDelimited", "explode": True}, LIST, "q=a%2Cb&q=c%20d"),
        ("query", {"style": "deepObject"}, OBJECT, "q%5BR%5D=100&q%5BG%5D=x%26y"),
        ("query", {"style": "deepObject", "explode": True}, OBJECT, "q%5BR%5D=100&q%5BG%5D=x%26y"),
        ("query", {"content": {"application/json": {}}}, LIST, "q=%5B%22a%2Cb%22%2C%22c%20d%22%5D"),
        ("query", {"content": {"application/json": {}}}, "a", "q=%22a%22"),
        ("query", {"content": {"text/plain": {}}}, "a", "q=a"),
        ("path", {}, 7, "/7"),
        ("path", {}, LIST, "/a%2Cb,c%20d"),
        ("path", {}, OBJECT, "/R,100,G,x%26y"),
        ("path", {"explode": True}, LIST, "/a%2Cb,c%20d"),
        ("path", {"explode": True}, OBJECT, "/R=100,G=x%26y"),
        ("header", {}, LIST, "a,b,c d"),
        ("header", {}, OBJECT, "R,100,G,x&y"),
        ("header", {"explode": True}, OBJECT, "R=100,G=x&y"),
    ],
)
def test_lists_and_objects_are_serialized_by_style(web, place, how, value, written):
    asked = {"name": "q", "in": place, "required": place == "path", **how}
    path = "/{q}" if place == "path" else "/"
    send(web, {path: {"get": {"operationId": "it", "parameters": [asked]}}}, {"q": value})
    _, sent, headers, _ = web.requests[0]
    assert {"query": sent.removeprefix("/").removeprefix("?"), "path": sent, "header": headers.get("q")}[
        place
    ] == written


def send(web, paths, arguments, base="", **settings):
    """Call the one operation of a service that answers everywhere."""
    document = {"openapi": "3.1.0", "paths": paths}
    made = HttpTool.from_openapi(document, base_url=web.url(base), allow_hosts=["127.0.0.1"], **settings)
    return Toolbox(made).execute(ToolCall("it", arguments)).result


@pytest.mark.parametrize("value", [[".."], ["."], [], [""], {}])
def test_list_in_path_cannot_change_url(web, value):
    asked = {"name": "q", "in": "path", "required": True}
    result = send(web, {"/{q}": {"get": {"operationId": "it", "parameters": [asked]}}}, {"q": value})
    assert (result.error_message.endswith("is not allowed in a URL"), web.requests) == (True, [])


@pytest.mark.parametrize("key", ["limit", "api_key"])
def test_query_object_cannot_override_other_parameters(web, key):
    asked = [{"name": "q", "in": "query"}, {"name": "limit", "in": "query"}]
    paths = {"/?api_key={KEY}": {"get": {"operationId": "it", "parameters": asked}}}
    result = send(web, paths, {"q": {key: "mine"}}, secrets={"KEY": "t0p-s3cret"})
    assert (result.error_message, web.requests) == (f"q: '{key}' is the name of another parameter", [])


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ({}, b"t=a%2Cb&t=c+d&o=%7B%22R%22%3A1%7D&s=x%2By"),
        ({"t": {"contentType": "text/plain"}}, b"t=a%2Cb&t=c+d&o=%7B%22R%22%3A1%7D&s=x%2By"),
        ({"t": {"explode": False}}, b"t=a%2Cb,c+d&o=%7B%22R%22%3A1%7D&s=x%2By"),
        ({"o": {"style": "deepObject"}}, b"t=a%2Cb&t=c+d&o%5BR%5D=1&s=x%2By"),
        ({"o": {"style": "form"}}, b"t=a%2Cb&t=c+d&R=1&s=x%2By"),
    ],
)
def test_form_fields_use_declared_encoding(web, encoding, body):
    form = {"content": {"application/x-www-form-urlencoded": {"schema": {"type": "object"}, "encoding": encoding}}}
    given = {"body": {"t": LIST, "o": {"R": 1}, "s": "x+y"}}
    send(web, {"/": {"post": {"operationId": "it", "requestBody": form}}}, given)
    assert web.requests[0][3] == body


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/"])
@pytest.mark.parametrize("path", ["/users:batchGet", "users:batchGet", "//users:batchGet"])
def test_path_may_contain_colon(web, base, path):
    send(web, {path: {"get": {"operationId": "it"}}}, {}, base)
    assert web.requests[0][1] == f"{base.rstrip('/')}/users:batchGet"


def test_path_arguments_with_similar_names_are_distinct(web):
    asked = [{"name": each, "in": "path", "required": True} for each in ("a.b", "a_b")]
    send(web, {"/{a.b}/{a_b}": {"get": {"operationId": "it", "parameters": asked}}}, {"a_b": "1", "a_b_2": "2"})
    assert web.requests[0][1] == "/1/2"


@pytest.mark.parametrize(
    ("operation", "item", "path"),
    [
        ({}, {}, "/whole/x"),
        ({}, {"servers": [{"url": "SITE/item"}]}, "/item/x"),
        ({"servers": [{"url": "SITE/{v}", "variables": {"v": {"default": "own"}}}]}, {"servers": [{}]}, "/own/x"),
        ({"servers": []}, {"servers": [{"url": "SITE/item"}]}, "/item/x"),
    ],
)
def test_most_specific_server_is_used(web, operation, item, path):
    document = {
        "openapi": "3.1.0",
        "servers": [{"url": "SITE/whole"}],
        "paths": {"/x": {"get": {"operationId": "it", **operation}, **item}},
    }
    text = json.dumps(document).replace("SITE", web.url(""))
    Toolbox(HttpTool.from_openapi(text, allow_hosts=["127.0.0.1"])).execute(ToolCall("it", {}))
    assert web.requests[0][1] == path


def test_unsupported_operations_can_be_excluded():
    upload = {"operationId": "upload", "requestBody": {"content": {"multipart/form-data": {}}}}
    document = change_document(lambda it: it["paths"].update({"/files": {"post": upload, "query": {}}}))
    with pytest.raises(ToolDefinitionError) as problem:
        HttpTool.from_openapi(document)
    assert str(problem.value) == (
        "OpenAPI: cannot call 'upload': its body is multipart/form-data, not JSON, a form or plain text; "
        "'query_files': the method QUERY cannot be sent; "
        "for the others pass only=['listPets', 'post_pets', 'write_note', 'write_note_2', 'login']"
    )
    assert [tool.name for tool in HttpTool.from_openapi(document, only=["login"])] == ["login"]


def test_secret_in_operation_url_is_never_shown(web):
    def echoing(handler):
        handler.send(200, {}, handler.path)

    web.answers["/"] = echoing
    paths = {"/?api_key={KEY}": {"get": {"operationId": "it"}}}
    assert send(web, paths, {}, secrets={"KEY": "t0p-s3cret"}).output == "/?api_key=***"


def test_approval_shows_the_operation_and_an_edit_replaces_the_arguments(web):
    web.answers["/v1/pets"] = b"done"
    made = load_tools(base_url=web.url("/v1"), allow_hosts=["127.0.0.1"], requires_approval=True)
    for decision in (Continue(), Edit('{"body": {"name": "Ada"}}')):
        reviewer = Reviewer(decision)
        box = Toolbox(made.values(), review=reviewer)
        assert box.execute(ToolCall("post_pets", {"body": {"name": "Rex"}})).text == "done"
        assert reviewer.requests[0].description == f"POST {web.url('/v1/pets')}\nPOST /pets\n{EDIT_OF_ALL}"
        assert reviewer.requests[0].arguments == {"body": {"name": "Rex"}}
    assert [body for *_, body in web.requests] == [b'{"name":"Rex"}', b'{"name":"Ada"}']


def test_text_body_is_edited_as_text():
    made = load_tools()
    assert (made["write_note"].editable, made["post_pets"].editable, made["listPets"].editable) == ("body", "", "")


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("{", "the document is not JSON"),
        ("[]", "must have version 3"),
        ({"swagger": "2.0"}, "must have version 3"),
        ({"openapi": "2.0"}, "must have version 3"),
        ({"openapi": "3.1.0"}, "has no paths"),
        (
            {"openapi": "3.1.0", "paths": {"/a": {"get": {}}}},
            "the server of 'get_a' is '', which is not an absolute URL; set the URL of the service with base_url=",
        ),
        (
            {"openapi": "3.1.0", "servers": [{"url": "/v1"}], "paths": {"/a": {"get": {}}}},
            "the server of 'get_a' is '/v1', which is not an absolute URL; set the URL of the service with base_url=",
        ),
        (parameter(style="matrix"), "cannot call 'listPets': its parameter 'x' has the style 'matrix'; .* only="),
        (parameter(**{"in": "header", "name": "X: y"}), "cannot call 'listPets': 'X: y' is not a valid header name"),
        (parameter(**{"in": "path", "style": "label"}), "its parameter 'x' has the style 'label'"),
        (parameter(**{"in": "header", "style": "form"}), "its parameter 'x' has the style 'form'"),
        (
            change_document(lambda it: it["paths"]["/login"].update(trace={"operationId": "follow"})),
            "cannot call 'follow': the method TRACE cannot be sent; .* only=",
        ),
        ({"openapi": "3.1.0", "paths": {"/a": "nothing"}}, "expected an object, not 'nothing'"),
        ({"openapi": "3.1.0", "paths": {"/a": {"get": "nothing"}}}, "the document is broken: AttributeError"),
        (
            {"openapi": "3.1.0", "paths": {"/a": {"$ref": "https://evil.example/a"}}},
            "only references inside the document",
        ),
        ({"openapi": "3.1.0", "paths": {"/a": {"$ref": "#/b"}}}, "'#/b' does not exist"),
        ({"openapi": "3.1.0", "paths": {"/a": {"$ref": "#/openapi/b"}}}, "'#/openapi/b' does not exist"),
        ({"openapi": "3.1.0", "paths": {"/a": {"$ref": "#/paths/~1a"}}}, "references are circular"),
        (parameter(schema=7), "a schema is nested too deeply, or is not an object: 7"),
        (parameter(schema={"type": "nonsense"}), "the schema is not valid"),
        (
            change_document(lambda it: it["paths"]["/pets"]["post"].update(requestBody={})),
            "'post_pets': its body is nothing",
        ),
        (
            change_document(
                lambda it: it["paths"]["/pets"]["post"].update(requestBody={"content": {"multipart/form-data": {}}})
            ),
            r"cannot call 'post_pets': its body is multipart/form-data, .* only=\['listPets', 'write_note', ",
        ),
    ],
)
def test_invalid_document_is_rejected(document, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        Toolbox(HttpTool.from_openapi(document))


def test_unknown_operation_is_rejected():
    with pytest.raises(ToolDefinitionError, match="no operation 'buyPet'; the operations are listPets, post_pets"):
        HttpTool.from_openapi(DOCUMENT, only=["buyPet"])


def test_too_deep_schema_is_rejected():
    schema = {}
    for _ in range(100):
        schema = {"type": "array", "items": schema}
    with pytest.raises(ToolDefinitionError, match="too deep"):
        HttpTool.from_openapi(parameter(schema=schema))


def test_invalid_names_are_replaced():
    document = {
        "openapi": "3.1.0",
        "servers": [{"url": "https://api.example"}],
        "paths": {
            "/": {
                "get": {
                    "operationId": "!",
                    "parameters": [{"name": each, "in": "query"} for each in ("a.b", "a/b", "?")],
                }
            }
        },
    }
    tool = HttpTool.from_openapi(document)[0]
    assert (tool.name, tool._endpoint.query) == ("get", {"a_b": "a.b", "a_b_2": "a/b", "value": "?"})


def with_operations(number, **operation):
    paths = {f"/p{index}": {"get": dict(operation)} for index in range(number)}
    return {"openapi": "3.1.0", "servers": [{"url": "https://api.example"}], "paths": paths}


def test_duplicate_operation_names_are_numbered_within_length_limit():
    made = HttpTool.from_openapi(with_operations(1100, operationId="x" * 80))
    names = [tool.name for tool in made]
    assert len(set(names)) == 1100
    assert names[:3] == ["x" * 64, f"{'x' * 56}_2", f"{'x' * 56}_3"]
    assert max(map(len, names)) == 64
    assert names[-1] == f"{'x' * 56}_1100"


def test_numbering_skips_existing_names():
    document = with_operations(0)
    ids = ["a", "a_2", "a_3", "a", "a"]
    document["paths"] = {f"/{index}": {"get": {"operationId": each}} for index, each in enumerate(ids)}
    assert [tool.name for tool in HttpTool.from_openapi(document)] == ["a", "a_2", "a_3", "a_4", "a_5"]


def with_body(schema, **document):
    operation = {"operationId": "it", "requestBody": {"content": {"application/json": {"schema": schema}}}}
    return {
        "openapi": "3.1.0",
        "servers": [{"url": "https://api.example"}],
        "paths": {"/a": {"post": operation}},
        **document,
    }


def shared_schema(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema, "b": schema}}
    return schema


def test_expanded_size_of_shared_schemas_is_limited():
    with pytest.raises(ToolDefinitionError, match="is too large: more than 150000 values when it is written out"):
        HttpTool.from_openapi(with_body(shared_schema(40)))
    assert HttpTool.from_openapi(with_body(shared_schema(5)))[0].name == "it"


def test_cyclic_schema_is_rejected():
    cyclic = {"type": "object", "properties": {}}
    cyclic["properties"]["again"] = {"type": "array", "items": cyclic}
    with pytest.raises(ToolDefinitionError, match=r"a schema contains itself; use \$ref"):
        HttpTool.from_openapi(with_body(cyclic))


@pytest.mark.parametrize("choice", ["anyOf", "oneOf", "allOf"])
def test_multiplying_choices_are_rejected_with_path(choice):
    schemas = {f"d{level}": {choice: [{"$ref": f"#/components/schemas/d{level + 1}"}] * 2} for level in range(22)}
    schemas["d22"] = {"type": "integer"}
    document = with_body({"$ref": "#/components/schemas/d0"}, components={"schemas": schemas})
    with pytest.raises(
        ToolDefinitionError, match=r"Tool 'it': the schema is too large: \$\.\$defs\.components_schemas_d"
    ):
        HttpTool.from_openapi(document)


def test_too_many_schemas_suggest_selecting_operations(monkeypatch):
    monkeypatch.setattr("toolsemble.builtin._openapi._MAX_SCHEMAS", 50)
    schema = {"type": "object", "properties": {f"p{index}": {"type": "string"} for index in range(20)}}
    parameters = [{"name": "q", "in": "query", "schema": schema}]
    document = with_operations(10, parameters=parameters)
    with pytest.raises(ToolDefinitionError, match=r"more than 50 schemas; choose some with only=\[…\]"):
        HttpTool.from_openapi(document)
    assert len(HttpTool.from_openapi(document, only=["get_p1", "get_p2"])) == 2


def test_error_lists_at_most_100_operations():
    with pytest.raises(ToolDefinitionError) as caught:
        HttpTool.from_openapi(with_operations(500), only=["none"])
    assert str(caught.value).endswith("get_p99, and 400 more")


CREDENTIALS = [
    {"auth": "TOKEN"},
    {"auth": ("ada", "hunter2")},
    {"secrets": {"key": "hunter2"}},
    {"headers": {"X-Api-Key": "hunter2"}},
    {"headers": {"Accept": "application/json", "X-Tenant": "ours"}},
]
ELSEWHERE = [
    "https://evil.example",
    "https://evil.example/v1",
    "http://api.example",
    "https://api.example:8443",
    "https://api.example.evil.example",
    "https://api.example@evil.example",
    "https://api.example\\@evil.example",
    "HTTPS://EVIL.example",
]


def make_redirecting_document(url, level, **variables):
    servers = {"servers": [{"url": url, "variables": variables}]}
    operation = {"operationId": "it", **(servers if level == "operation" else {})}
    item = {"get": operation, **(servers if level == "path" else {})}
    return {"openapi": "3.1.0", "servers": [{"url": "https://api.example"}], "paths": {"/a": item}}


@pytest.mark.parametrize("level", ["operation", "path"])
@pytest.mark.parametrize("url", ELSEWHERE)
@pytest.mark.parametrize("credentials", CREDENTIALS)
def test_no_part_of_a_document_sends_credentials_to_another_origin(credentials, url, level):
    document = make_redirecting_document(url, level)
    with pytest.raises(ToolDefinitionError, match=r"'it' would send credentials to .*; set the URL .* with base_url="):
        HttpTool.from_openapi(document, **credentials)
    made = HttpTool.from_openapi(document, base_url="https://api.example/v2", **credentials)
    assert made[0].approval_description.startswith("GET https://api.example/v2/a\n")


def test_server_variable_cannot_change_where_credentials_go():
    document = make_redirecting_document(
        "https://{host}/v1", "operation", host={"default": "evil.example", "enum": ["api.example"]}
    )
    with pytest.raises(ToolDefinitionError, match=r"credentials to https://evil\.example, which is not https://api.ex"):
        HttpTool.from_openapi(document, auth="TOKEN")


@pytest.mark.parametrize("url", ["https://api.example/v2", "HTTPS://API.EXAMPLE", "https://api.example:443/x"])
def test_credentials_are_allowed_for_servers_of_one_origin(url):
    assert HttpTool.from_openapi(make_redirecting_document(url, "operation"), auth="TOKEN")[0].name == "it"


def test_credentials_require_document_server():
    document = make_redirecting_document("https://one.example", "operation")
    del document["servers"]
    with pytest.raises(ToolDefinitionError, match="and the document has no server; set the URL"):
        HttpTool.from_openapi(document, auth="TOKEN")


def test_operation_may_have_own_server_without_credentials():
    tool = HttpTool.from_openapi(
        make_redirecting_document("https://other.example", "operation"), headers={"User-Agent": "us"}
    )[0]
    assert tool.approval_description.startswith("GET https://other.example/a\n")


def test_excluded_operation_may_have_another_server():
    document = make_redirecting_document("https://evil.example", "operation")
    document["paths"]["/b"] = {"get": {"operationId": "good"}}
    assert [tool.name for tool in HttpTool.from_openapi(document, only=["good"], auth="TOKEN")] == ["good"]


def test_server_variable_without_value_is_rejected():
    with pytest.raises(ToolDefinitionError, match="the server of 'it' has no variable 'host'"):
        HttpTool.from_openapi(make_redirecting_document("https://{host}", "path"))


FASTAPI = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "paths": {
        "/pets": {
            "get": {"operationId": "list_pets_pets_get", "summary": "Lists pets"},
            "post": {"operationId": "add_pet_pets_post", "summary": "Adds a pet"},
        },
        "/pets/{pet_id}": {
            method: {
                "operationId": f"{verb}_pet_pets__pet_id__{method}",
                "parameters": [{"name": "pet_id", "in": "path", "required": True, "schema": {"type": "integer"}}],
            }
            for method, verb in {"get": "read", "put": "replace", "patch": "change", "delete": "remove"}.items()
        },
    },
}
FULL_NAMES = [
    "list_pets_pets_get", "add_pet_pets_post", "read_pet_pets__pet_id__get", "replace_pet_pets__pet_id__put",
    "change_pet_pets__pet_id__patch", "remove_pet_pets__pet_id__delete",
]  # fmt: skip
SHORT_NAMES = ["list_pets", "add_pet", "read_pet", "replace_pet", "change_pet", "remove_pet"]
YAML = """\
openapi: 3.1.0
servers: [{url: https://shop.example}]
paths:
  /pets:
    get:
      operationId: list_pets
      parameters:
        - {name: country, in: query, schema: {type: string, enum: [NO, SE], default: NO}}
        - {name: since, in: query, schema: {type: string, default: 2024-03-15}}
        - {name: sold, in: query, schema: {type: boolean, default: false}}
"""


def shop(document=None, **settings):
    return HttpTool.from_openapi(
        FASTAPI if document is None else document, **{"base_url": "https://a.example"} | settings
    )


class TestNames:
    def test_come_from_the_document(self):
        assert [each.name for each in shop()] == FULL_NAMES

    def test_can_be_short(self):
        assert [each.name for each in shop(rename="short")] == SHORT_NAMES

    def test_stay_long_where_short_ones_would_be_equal(self):
        document = copy.deepcopy(FASTAPI)
        document["paths"]["/dogs"] = {"get": {"operationId": "list_pets_dogs_get"}}
        document["paths"]["/cats"] = {"get": {"operationId": "add_pet"}}
        document["paths"]["/_"] = {"get": {"operationId": "___get"}}
        names = [each.name for each in shop(document, rename="short")]
        assert names[:2] == ["list_pets_pets_get", "add_pet_pets_post"]
        assert names[-3:] == ["list_pets_dogs_get", "add_pet", "get"]

    def test_can_be_replaced(self):
        assert shop(rename={"list_pets_pets_get": "pets"})[0].name == "pets"
        assert [each.name for each in shop(rename=str.upper)] == [name.upper() for name in FULL_NAMES]

    def test_are_chosen_by_the_names_in_the_document(self):
        (only,) = shop(only=["list_pets_pets_get"], rename={"list_pets_pets_get": "pets"})
        assert only.name == "pets"

    @pytest.mark.parametrize(
        ("rename", "problem"),
        [
            (
                {"list_pets": "pets"},
                "rename: there is no operation 'list_pets'; the operations are list_pets_pets_get, ",
            ),
            ({"list_pets_pets_get": "a b"}, "Invalid tool name 'a b'"),
            (lambda name: "pets", "rename gives 6 operations the name 'pets'"),
            (lambda name: None, "The tool has no name"),
            (5, "rename must be a dict from names to new names, a function of a name, or 'short', not 5"),
            ("long", "rename must be a dict from names to new names, a function of a name, or 'short', not 'long'"),
        ],
    )
    def test_that_are_wrong_are_refused(self, rename, problem):
        with pytest.raises(ToolDefinitionError, match=problem):
            shop(rename=rename)

    def test_errors_of_a_function_are_raised(self):
        with pytest.raises(ZeroDivisionError):
            shop(rename=lambda name: 1 / 0)


class TestEffects:
    def test_follow_from_the_method(self):
        made = {each.name: (each.effects, each.idempotent) for each in shop(rename="short")}
        assert made == {
            "list_pets": ("read", False),
            "add_pet": (None, False),
            "read_pet": ("read", False),
            "replace_pet": (None, True),
            "change_pet": (None, False),
            "remove_pet": ("irreversible", False),
        }

    def test_are_hints_for_other_programs(self):
        hints = {each["name"]: each.get("annotations") for each in Toolbox(shop(rename="short")).to_mcp()}
        assert hints["list_pets"] == {"readOnlyHint": True}
        assert hints["remove_pet"] == {"readOnlyHint": False, "destructiveHint": True}

    def test_can_be_set_for_all(self):
        assert {each.effects for each in shop(effects="write")} == {"write"}


class TestWhereADocumentIs:
    def test_a_file(self, tmp_path):
        file = tmp_path / "openapi.json"
        file.write_text(json.dumps(FASTAPI))
        assert [each.name for each in shop(file)] == FULL_NAMES
        assert [each.name for each in shop(str(file))] == FULL_NAMES

    @pytest.mark.parametrize("path", ["openapi.json", "no/such/file.yaml", "shop"])
    def test_a_file_that_does_not_exist(self, path):
        with pytest.raises(
            ToolDefinitionError, match=f"OpenAPI: '{path}' is not JSON, YAML or a URL, and cannot be read"
        ):
            shop(path)

    def test_a_file_in_another_encoding(self, tmp_path):
        file = tmp_path / "openapi.json"
        file.write_bytes(b"\xff\xfe{")
        with pytest.raises(ToolDefinitionError, match=r"cannot be read as a file: .*utf-8"):
            shop(file)

    def test_yaml(self, tmp_path):
        file = tmp_path / "openapi.yaml"
        file.write_text(YAML)
        for document in (YAML, file, str(file)):
            (made,) = HttpTool.from_openapi(document)
            (specification,) = Toolbox([made]).specifications
            fields = specification.parameters["properties"]
            assert fields["country"] == {"type": "string", "enum": ["NO", "SE"], "default": "NO"}
            assert (fields["since"]["default"], fields["sold"]["default"]) == ("2024-03-15", False)

    @pytest.mark.parametrize("text", ["openapi: [", "a: b: c", "x: &a [*b]", "openapi: !!python/name:os.system x"])
    def test_yaml_that_is_broken(self, text):
        with pytest.raises(ToolDefinitionError, match="OpenAPI: the document is neither JSON nor YAML: "):
            shop(text)

    def test_yaml_without_its_package(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "yaml", None)
        with pytest.raises(
            ToolDefinitionError, match=r"An OpenAPI document in YAML needs the package 'yaml': .*\[yaml\]"
        ):
            shop(YAML)

    def test_a_url(self, web):
        web.answers["/openapi.json"] = (200, {"Content-Type": "application/json"}, json.dumps(FASTAPI).encode())
        web.answers["/pets"] = (200, {}, b"[]")
        made = HttpTool.from_openapi(
            web.url("/openapi.json"), allow_hosts=["127.0.0.1"], auth="a-long-token", rename="short"
        )
        assert [each.name for each in made] == SHORT_NAMES
        assert Toolbox(made).execute(ToolCall("list_pets")).text == "[]"
        assert [(path, headers.get("Authorization")) for _, path, headers, _ in web.requests] == [
            ("/openapi.json", None),
            ("/pets", "Bearer a-long-token"),
        ]

    @pytest.mark.parametrize("server", ["/v1", "v1/", "./v1"])
    def test_a_url_to_which_servers_are_relative(self, web, server):
        document = {**FASTAPI, "servers": [{"url": server}]}
        web.answers["/openapi.json"] = (200, {}, json.dumps(document).encode())
        web.answers["/v1/pets"] = (200, {}, b"[]")
        made = HttpTool.from_openapi(web.url("/openapi.json"), allow_hosts=["127.0.0.1"], rename="short")
        assert Toolbox(made).execute(ToolCall("list_pets")).text == "[]"

    @pytest.mark.parametrize("server", ["https://evil.example", "//evil.example/x"])
    def test_a_fetched_document_cannot_send_credentials_elsewhere(self, web, server):
        document = {**FASTAPI, "servers": [{"url": server}]}
        web.answers["/openapi.json"] = (200, {}, json.dumps(document).encode())
        with pytest.raises(
            ToolDefinitionError, match=r"evil.example, which is not http://127.0.0.1:\d+, the document's or"
        ):
            HttpTool.from_openapi(web.url("/openapi.json"), allow_hosts=["127.0.0.1"], auth="a-long-token")
        made = HttpTool.from_openapi(
            web.url("/openapi.json"), allow_hosts=["127.0.0.1"], auth="a-long-token", base_url="https://b.example"
        )
        assert len(made) == len(FULL_NAMES)

    def test_a_url_that_is_not_public(self):
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(ToolDefinitionError) as refused:
                HttpTool.from_openapi(f"http://{host}/openapi.json")
            assert str(refused.value) == (
                f"OpenAPI: the document cannot be fetched: Access denied: '{host}' is not a public address; if it may "
                f"be reached, pass allow_hosts=['{host}']"
            )

    def test_a_url_without_a_document(self, web):
        web.answers["/x"] = (404, {}, b"")
        with pytest.raises(ToolDefinitionError, match="OpenAPI: the document cannot be fetched: HTTP 404: Not Found"):
            HttpTool.from_openapi(web.url("/x"), allow_hosts=["127.0.0.1"])

    def test_a_url_that_does_not_exist(self):
        with pytest.raises(ToolDefinitionError, match=r"cannot be fetched: Cannot resolve host 'shop.example'; check"):
            HttpTool.from_openapi("https://shop.example/openapi.json", resolver=lambda *_: [])

    def test_a_document_that_never_ends(self, web, monkeypatch):
        monkeypatch.setattr("toolsemble.builtin._http_tool._MAX_DOCUMENT", 100)
        web.answers["/x"] = (200, {}, b"x" * 101)
        with pytest.raises(ToolDefinitionError, match="cannot be fetched: it has more than 100 bytes"):
            HttpTool.from_openapi(web.url("/x"), allow_hosts=["127.0.0.1"])
