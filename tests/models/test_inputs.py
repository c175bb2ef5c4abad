"""Images, audio and files in prompts, as each provider takes them."""

from __future__ import annotations

import base64
import json

import pytest
from openai import AsyncAzureOpenAI

from helpers.openai_wire import CHAT, RESPONSES, completion, model_at, response, sent, text_item, whole
from helpers.web_server import serving
from toolsemble import Agent, AudioContent, FileContent, ImageContent, ModelError, ToolDefinitionError
from toolsemble.models import (
    AnthropicModel,
    BedrockModel,
    ChatRequest,
    FallbackModel,
    GoogleModel,
    MistralModel,
    OpenAIModel,
    ScriptedModel,
    UserMessage,
    message_from_json,
    message_to_json,
    model_of,
)

pytestmark = pytest.mark.slow

DATA = b"\x00\xff"
TEXT = base64.b64encode(DATA).decode()
PAGE = "https://example.com/"
IMAGE = ImageContent(DATA, "image/png")
IMAGE_URL = ImageContent.from_url(f"{PAGE}map.png?signature=abc")
ANY_IMAGE_URL = ImageContent.from_url(f"{PAGE}map")
PDF = FileContent(DATA, "application/pdf", "report.pdf")
PDF_URL = FileContent.from_url(f"{PAGE}report.pdf")
WAV = AudioContent(DATA, "audio/wav")
WAV_URL = AudioContent.from_url(f"{PAGE}talk.wav", "audio/wav")
CODE = FileContent(b"a: 1", "application/yaml", "a.yaml")
CODE_TEXT = "File a.yaml:\n\na: 1"
CSV = FileContent(b"a;b", "text/csv", "a.csv")
ZIP = FileContent(DATA, "application/zip", "a.zip")


@pytest.fixture
def web():
    with serving() as server:
        server.answers[CHAT] = whole(completion({"content": "hi"}))
        server.answers["/v1/deployments/gpt-test/chat/completions"] = server.answers[CHAT]
        server.answers[RESPONSES] = whole(response(text_item("hi")))
        message = {"content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn", "usage": {}}
        server.answers["/v1/messages"] = whole({"id": "m", "type": "message", "role": "assistant", **message})
        parts = {"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"}
        server.answers["/v1/models/gemini-3-flash:generateContent"] = whole({"candidates": [parts]})
        output = {"message": {"role": "assistant", "content": [{"text": "hi"}]}}
        server.answers["/model/nova/converse"] = whole({"output": output, "stopReason": "end_turn"})
        yield server


def azure(web, api):
    client = AsyncAzureOpenAI(api_key="s3cret-key", api_version="x", base_url=web.url("/v1"))
    return OpenAIModel("gpt-test", client=client, api=api)


MODELS = {
    "chat": lambda web: azure(web, "chat"),
    "responses": lambda web: azure(web, "responses"),
    "server": model_at,
    "anthropic": lambda web: AnthropicModel("claude", api_key="s3cret-key", base_url=web.url("")),
    "google": lambda web: GoogleModel("gemini-3-flash", api_key="s3cret-key", base_url=web.url("")),
    "mistral": lambda web: MistralModel("mistral", api_key="s3cret-key", base_url=web.url("")),
    "bedrock": lambda web: BedrockModel("nova", api_key="s3cret-key", region="us-east-1", base_url=web.url("")),
}


def prompt_of(name, body):
    """Return the content of the only message of a request."""
    if name == "responses":
        return body["input"][0]["content"]
    if name == "google":
        return body["contents"][0]["parts"]
    return body["messages"][0]["content"]


def chat_image(url):
    return {"type": "image_url", "image_url": {"url": url}}


def document(source, title):
    return {"type": "document", "source": source, "title": title}


PNG_URL = f"data:image/png;base64,{TEXT}"
PDF_DATA = f"data:application/pdf;base64,{TEXT}"
URL = IMAGE_URL.url
WRITTEN = {
    ("chat", IMAGE): chat_image(PNG_URL),
    ("chat", IMAGE_URL): chat_image(URL),
    ("chat", ANY_IMAGE_URL): chat_image(f"{PAGE}map"),
    ("chat", WAV): {"type": "input_audio", "input_audio": {"data": TEXT, "format": "wav"}},
    ("chat", PDF): {"type": "file", "file": {"filename": "report.pdf", "file_data": PDF_DATA}},
    ("chat", CODE): {"type": "text", "text": CODE_TEXT},
    ("server", IMAGE): chat_image(PNG_URL),
    ("server", CSV): {"type": "text", "text": "File a.csv:\n\na;b"},
    ("responses", IMAGE): {"type": "input_image", "image_url": PNG_URL, "detail": "auto"},
    ("responses", IMAGE_URL): {"type": "input_image", "image_url": URL, "detail": "auto"},
    ("responses", PDF): {"type": "input_file", "filename": "report.pdf", "file_data": PDF_DATA},
    ("responses", PDF_URL): {"type": "input_file", "file_url": f"{PAGE}report.pdf"},
    ("responses", CSV): {"type": "input_file", "filename": "a.csv", "file_data": "data:text/csv;base64,YTti"},
    ("responses", CODE): {"type": "input_text", "text": CODE_TEXT},
    ("anthropic", IMAGE): {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": TEXT},
    },
    ("anthropic", IMAGE_URL): {"type": "image", "source": {"type": "url", "url": URL}},
    ("anthropic", PDF): document({"type": "base64", "media_type": "application/pdf", "data": TEXT}, "report.pdf"),
    ("anthropic", PDF_URL): document({"type": "url", "url": f"{PAGE}report.pdf"}, "report.pdf"),
    ("anthropic", CSV): document({"type": "text", "media_type": "text/plain", "data": "a;b"}, "a.csv"),
    ("anthropic", CODE): {"type": "text", "text": CODE_TEXT},
    ("google", IMAGE): {"inlineData": {"mime_type": "image/png", "data": "AP8="}},
    ("google", IMAGE_URL): {"fileData": {"mime_type": "image/png", "file_uri": URL}},
    ("google", PDF): {"inlineData": {"mime_type": "application/pdf", "data": "AP8="}},
    ("google", PDF_URL): {"fileData": {"mime_type": "application/pdf", "file_uri": f"{PAGE}report.pdf"}},
    ("google", WAV): {"inlineData": {"mime_type": "audio/wav", "data": "AP8="}},
    ("google", WAV_URL): {"fileData": {"mime_type": "audio/wav", "file_uri": f"{PAGE}talk.wav"}},
    ("google", CODE): {"text": CODE_TEXT},
    ("mistral", IMAGE): {"type": "image_url", "image_url": PNG_URL},
    ("mistral", IMAGE_URL): {"type": "image_url", "image_url": URL},
    ("mistral", PDF): {"type": "document_url", "document_url": PDF_DATA, "document_name": "report.pdf"},
    ("mistral", PDF_URL): {
        "type": "document_url",
        "document_url": f"{PAGE}report.pdf",
        "document_name": "report.pdf",
    },
    ("mistral", WAV): {"type": "input_audio", "input_audio": TEXT},
    ("mistral", WAV_URL): {"type": "input_audio", "input_audio": f"{PAGE}talk.wav"},
    ("mistral", CODE): {"type": "text", "text": CODE_TEXT},
    ("bedrock", IMAGE): {"image": {"format": "png", "source": {"bytes": TEXT}}},
    ("bedrock", PDF): {"document": {"format": "pdf", "name": "report", "source": {"bytes": TEXT}}},
    ("bedrock", WAV): {"audio": {"format": "wav", "source": {"bytes": TEXT}}},
    ("bedrock", CODE): {"text": CODE_TEXT},
}


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [(*key, value) for key, value in WRITTEN.items()],
    ids=lambda value: str(value)[:40],
)
async def test_a_content_is_sent_as_its_provider_takes_it(web, name, content, expected):
    assert (await MODELS[name](web).reply(ChatRequest([UserMessage("What?", (content,))]))).text == "hi"
    written = prompt_of(name, sent(web))
    assert [part for part in written if "What?" not in json.dumps(part)] == [expected]
    assert len(written) == 2


REFUSED = [
    ("chat", PDF_URL, r"takes application/pdf as bytes, not by URL \(https://example.com/report.pdf\); download it"),
    ("chat", PDF_URL, r"and pass FileContent\(data, 'application/pdf', name\)$"),
    ("chat", WAV_URL, r"takes audio/wav as bytes, not by URL .*AudioContent\(data, 'audio/wav'\)"),
    ("chat", ZIP, "OpenAI .chat completions. takes no application/zip in prompts, but application/pdf, audio/mp3"),
    ("responses", WAV, "takes no audio/wav in prompts, but .*; for audio, use a model that hears with api='chat'"),
    ("responses", WAV_URL, "takes no audio/wav in prompts"),
    ("server", IMAGE_URL, r"127.0.0.1 takes image/png as bytes, not by URL \(https://example.com/map.png\); download"),
    ("server", ANY_IMAGE_URL, r"takes image/\* as bytes, not by URL"),
    ("server", PDF, "127.0.0.1 takes no application/pdf in prompts, but image/gif, .*text files; if the server takes"),
    ("server", PDF, r"it, say so: OpenAIModel\(..., inputs="),
    ("anthropic", WAV, "Anthropic takes no audio/wav in prompts, but application/pdf, image/gif, .*, text files$"),
    ("anthropic", ImageContent(DATA, "image/bmp"), "no image/bmp .*, but image/gif, image/jpeg, image/png, image/w"),
    ("anthropic", FileContent.from_url(f"{PAGE}a.html"), "takes text/html as bytes, not by URL"),
    ("google", ANY_IMAGE_URL, "Gemini needs the media type of https://example.com/map; pass mime_type= to from_url"),
    ("google", ZIP, "Gemini takes no application/zip in prompts"),
    ("mistral", ZIP, "Mistral takes no application/zip in prompts"),
    ("bedrock", IMAGE_URL, r"Bedrock takes image/png as bytes, not by URL .*ImageContent\(data, 'image/png'\)$"),
    ("bedrock", ZIP, "Bedrock takes no application/zip in prompts"),
    ("mistral", ImageContent(b"", "image/png"), r"A content of the prompt is empty: \[image/png, 0 bytes, not shown\]"),
    ("anthropic", FileContent(b" ", "text/plain", "a.txt"), "Anthropic takes no text/plain in prompts"),
    ("anthropic", FileContent(b"\xff", "text/plain", "a.txt"), "Anthropic takes no text/plain in prompts"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), REFUSED)
async def test_a_content_that_a_provider_does_not_take_is_refused_before_anything_is_sent(web, name, content, message):
    model, request = MODELS[name](web), ChatRequest([UserMessage("What?", (content,))])
    with pytest.raises(ModelError, match=message) as caught:
        await model.reply(request)
    with pytest.raises(ModelError, match=message):
        [chunk async for chunk in model.stream(request)]
    assert not caught.value.retryable
    assert web.requests == []


async def test_contents_that_are_too_large_together_are_refused(web):
    big = FileContent(b"x" * 13_000_000, "application/pdf", "a.pdf")
    model = MODELS["anthropic"](web)
    await model.reply(ChatRequest([UserMessage("What?", (big,))]))
    with pytest.raises(ModelError, match=r"have 34\.7 MB in base64, and Anthropic takes 32 MB; send fewer or smaller"):
        await model.reply(ChatRequest([UserMessage("What?", (big,)), UserMessage("And?", (big,))]))


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("ollama:q", {"image"}),
        ("lmstudio:q", {"image"}),
        ("vllm:q", {"image", "image_url"}),
        ("groq:q", {"image", "image_url"}),
        ("openrouter:q", {"image", "image_url", "audio", "file", "file_url"}),
    ],
)
async def test_a_server_takes_what_is_known_of_it(web, monkeypatch, name, inputs):
    for variable in ("GROQ_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.setenv(variable, "k")
    monkeypatch.setattr("toolsemble.models.openai._chat.write_parameters", lambda *_, **__: {"messages": []})
    monkeypatch.setattr("openai.resources.chat.completions.AsyncCompletions.create", _create)
    contents = {"image": IMAGE, "image_url": IMAGE_URL, "audio": WAV, "file": PDF, "file_url": PDF_URL}
    taken = set()
    for kind, content in contents.items():
        try:
            await model_of(name).reply(ChatRequest([UserMessage("What?", (content,))]))
        except ModelError:
            continue
        taken.add(kind)
    assert taken == inputs


async def _create(self, *, messages, model, stream):
    return completion({"content": "hi"})


async def test_a_server_can_be_said_to_take_more(web):
    model = model_at(web, inputs=["image_url", "file"])
    await model.reply(ChatRequest([UserMessage("What?", (IMAGE_URL, PDF))]))
    assert prompt_of("chat", sent(web))[1] == chat_image(URL)
    with pytest.raises(ModelError, match="takes no image/png in prompts, but application/pdf, text files"):
        await model.reply(ChatRequest([UserMessage("What?", (IMAGE,))]))


@pytest.mark.parametrize("inputs", ["image", ["images"], 7])
def test_rejects_unknown_kinds_of_inputs(web, inputs):
    with pytest.raises(
        ToolDefinitionError, match="inputs must be a list of image, image_url, audio, file, file_url, not"
    ):
        model_at(web, inputs=inputs)


async def test_a_document_without_a_text_gets_one_for_bedrock(web):
    await MODELS["bedrock"](web).reply(ChatRequest([UserMessage("", (PDF,))]))
    assert prompt_of("bedrock", sent(web))[0] == {"text": "Read this."}


async def test_a_content_that_one_model_refuses_goes_to_the_next(web):
    model = FallbackModel(MODELS["anthropic"](web), ScriptedModel(["I hear"]))
    assert (await Agent(model).run(["What is this?", WAV])).text == "I hear"


@pytest.mark.parametrize(
    "prompt", [["What is this?", PDF, WAV], [PDF, "What is this?", WAV], UserMessage("What is this?", (PDF, WAV))]
)
async def test_a_prompt_holds_files_and_audio_beside_its_text(prompt):
    model = ScriptedModel(["a report"])
    await Agent(model).run(prompt)
    assert model.requests == [[UserMessage("What is this?", (PDF, WAV))]]


async def test_a_prompt_may_be_one_file():
    model = ScriptedModel(["a report"])
    await Agent(model).run(PDF)
    assert model.requests == [[UserMessage("", (PDF,))]]


def test_contents_come_back_from_json():
    message = UserMessage("What?", (IMAGE, IMAGE_URL, ANY_IMAGE_URL, PDF, PDF_URL, WAV, WAV_URL))
    assert message_from_json(message_to_json(message)) == message
    assert message.images == (IMAGE, IMAGE_URL, ANY_IMAGE_URL)


def test_messages_of_earlier_versions_come_back():
    old = '{"role":"user","text":"a","images":[{"type":"image","mime_type":"image/png","data":"AP8="}]}'
    assert message_from_json(old) == UserMessage("a", (IMAGE,))


def test_a_stored_url_is_checked_again():
    stored = message_to_json(UserMessage("a", (IMAGE_URL,))).replace("https:", "file:")
    with pytest.raises(ValueError, match="needs an http, https or data URL"):
        message_from_json(stored)
