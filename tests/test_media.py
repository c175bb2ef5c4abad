from __future__ import annotations

import pytest

from toolsemble import AudioContent, FileContent, ImageContent, Secret, Toolbox, ToolCall, ToolReply, ToolResult, tool
from toolsemble._runtime.text import HIDDEN
from toolsemble._vocabulary.serialization import read_content, write_content
from toolsemble.testing import RecordingSink

PAGE = "https://example.com/"
URL = ImageContent.from_url(f"{PAGE}map.png?signature=abc")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (URL, ImageContent(b"", "image/png", url=f"{PAGE}map.png?signature=abc")),
        (ImageContent.from_url(f"{PAGE}map"), ImageContent(b"", "image/*", url=f"{PAGE}map")),
        (ImageContent.from_url("http://example.com/a", "image/webp").mime_type, "image/webp"),
        (AudioContent.from_url(f"{PAGE}a.mp3").mime_type, "audio/mpeg"),
        (
            FileContent.from_url(f"{PAGE}a%20b.pdf"),
            FileContent(b"", "application/pdf", "a b.pdf", url=f"{PAGE}a%20b.pdf"),
        ),
        (FileContent.from_url(PAGE, "application/pdf").name, "file"),
        (FileContent.from_url(f"{PAGE}a.pdf", name="b.pdf").name, "b.pdf"),
        (ImageContent.from_url("data:image/png;base64,aGk="), ImageContent(b"hi", "image/png")),
        (ImageContent.from_url("DATA:image/png;base64,aGk%3D"), ImageContent(b"hi", "image/png")),
        (FileContent.from_url("data:,a%20b"), FileContent(b"a b", "text/plain", "file")),
        (
            FileContent.from_url("data:text/csv;charset=utf-8,a;b", "text/plain", "a"),
            FileContent(b"a;b", "text/plain", "a"),
        ),
    ],
)
def test_a_content_can_be_a_url(content, expected):
    assert content == expected


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.com/a.png",
        "gs://bucket/a.png",
        "javascript:alert(1)",
        "example.com/a.png",
        "https://",
        "https://[::1/a.png",
        "https://example.com/a b.png",
        "https://example.com/a\n.png",
        "",
        None,
        b"https://example.com/a.png",
    ],
)
def test_rejects_anything_but_web_addresses(url):
    with pytest.raises(ValueError, match="ImageContent needs an http, https or data URL, such as 'https://example"):
        ImageContent.from_url(url)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ImageContent.from_url("https://ada:pw@example.com/a.png"), "URL contains a password"),
        (lambda: ImageContent.from_url(PAGE + "a" * 9000), "ImageContent URL has 9020 characters; the limit is 8192"),
        (
            lambda: FileContent.from_url(f"{PAGE}report"),
            "FileContent cannot guess the media type of .*; pass mime_type=",
        ),
        (lambda: AudioContent.from_url(f"{PAGE}a"), "AudioContent cannot guess the media type"),
        (
            lambda: ImageContent.from_url("data:image/png;base64,a"),
            "ImageContent cannot decode the data URL 'data:image",
        ),
        (lambda: ImageContent.from_url("data:image/png;base64,é"), "cannot decode the data URL"),
        (lambda: ImageContent.from_url("data:image/png"), "cannot decode the data URL"),
        (lambda: ImageContent.from_url("data:" + "a" * 900), "data:a+[.][.][.]$"),
        (lambda: ImageContent(b"a", "image/png", url=PAGE), "ImageContent takes bytes or a URL, not both"),
        (lambda: ImageContent(b"", "image/png", url="file:///etc/passwd"), "needs an http, https or data URL"),
    ],
)
def test_rejects_urls_that_cannot_be_used(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("kind", [ImageContent, AudioContent])
def test_text_in_place_of_bytes_is_rejected_with_advice(kind):
    message = rf"{kind.__name__} data must be bytes, not 'https:.*; or use {kind.__name__}.from_url\(url\)"
    with pytest.raises(TypeError, match=message):
        kind("https://example.com/a.png", "image/png")


def test_rejects_a_media_type_that_is_not_text():
    with pytest.raises(TypeError, match="ImageContent mime_type must be a str, such as 'image/png', not None"):
        ImageContent(b"a", None)


def test_a_repr_hides_the_signature_of_a_url():
    assert repr(URL) == "ImageContent(url='https://example.com/map.png', mime_type='image/png')"
    assert repr(FileContent.from_url(f"{PAGE}a.pdf#x")) == (
        "FileContent(url='https://example.com/a.pdf', mime_type='application/pdf', name='a.pdf')"
    )


@pytest.mark.parametrize("content", [URL, AudioContent.from_url(f"{PAGE}a.mp3"), FileContent.from_url(f"{PAGE}a.pdf")])
def test_a_url_comes_back_from_json(content):
    assert read_content(write_content(content)) == content


def reply_with(content):
    return ToolReply(ToolCall("draw", "{}", "c1"), ToolResult.success("done", contents=[content]))


def test_a_result_with_a_url_is_sent_as_a_url_or_named():
    image, pdf = reply_with(URL), reply_with(FileContent.from_url(f"{PAGE}a.pdf"))
    named = f"[image/png, {URL.url}, not shown]"
    assert image.to_openai()["content"] == f"done\n{named}"
    assert image.to_openai(api="responses")["output"][1] == {"type": "input_image", "image_url": URL.url}
    assert pdf.to_openai(api="responses")["output"][1] == {"type": "input_file", "file_url": f"{PAGE}a.pdf"}
    assert image.to_anthropic()["content"][1] == {"type": "image", "source": {"type": "url", "url": URL.url}}
    assert image.to_mistral()["content"][1] == {"type": "image_url", "image_url": URL.url}
    assert image.to_google()["function_response"]["response"] == {"output": f"done\n{named}"}
    assert image.to_bedrock()["toolResult"]["content"][1] == {"text": named}
    assert image.to_ollama()["content"] == f"done\n{named}"
    assert image.to_mcp()["content"][1] == {
        "type": "resource_link",
        "uri": URL.url,
        "name": "image.png",
        "mimeType": "image/png",
    }


def test_audio_at_a_url_is_named_where_results_take_none():
    reply = reply_with(AudioContent.from_url(f"{PAGE}a.mp3"))
    assert reply.to_openai(api="responses")["output"][1]["text"].startswith("[audio/mpeg, https://")


@tool
def draw(key: Secret[str]) -> ImageContent:
    """Draw a map."""
    return ImageContent.from_url(f"{PAGE}map.png?key={key.get_secret_value()}")


def test_a_secret_in_a_url_is_masked():
    sink = RecordingSink()
    Toolbox([draw], sinks=[sink]).execute(ToolCall("draw", {"key": "very-secret-key"}))
    assert sink.of("call_finished")[0].result.contents == (ImageContent(HIDDEN.encode(), "image/png"),)


@pytest.mark.parametrize("url", ["data:,", "data:image/png;base64,", "data:text/plain,hello", "data:,hello"])
def test_rejects_a_data_url_that_holds_no_image(url):
    with pytest.raises(ValueError, match=r"ImageContent needs a data URL with data of the type image/\*, not 'data:"):
        ImageContent.from_url(url)


def test_reads_a_data_url_whose_type_is_passed():
    assert ImageContent.from_url("data:,hello", "image/png") == ImageContent(b"hello", "image/png")
    assert FileContent.from_url("data:,").data == b""


@pytest.mark.parametrize("mime_type", ["image/png\r\nX-Evil: 1", "image/\u202epng", "image/\x00"])
def test_rejects_a_media_type_with_control_characters(mime_type):
    with pytest.raises(ValueError, match="ImageContent mime_type must be a media type, such as 'image/png', not"):
        ImageContent(b"...", mime_type)


@pytest.mark.parametrize("kind", [ImageContent, AudioContent, FileContent])
def test_names_from_url_where_a_url_is_passed_without_a_media_type(kind):
    with pytest.raises(TypeError, match=rf"data must be bytes, not 'https://.*use {kind.__name__}.from_url\(url\)"):
        kind("https://example.com/map.png")
    with pytest.raises(TypeError, match="mime_type"):
        kind(b"...")
