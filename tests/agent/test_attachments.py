"""Images, audio and files in the requests of browsers."""

import pytest
from ag_ui.core import RunAgentInput

from toolsemble._vocabulary.result import AudioContent, FileContent, ImageContent
from toolsemble.agent.streams import read_ag_ui, read_vercel

PNG, PDF = "data:image/png;base64,aGk=", "data:application/pdf;base64,aGk="


def read_vercel_file(**part):
    message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "What?"}, {"type": "file", **part}]}
    return read_vercel({"id": "chat_1", "messages": [message]}).prompt.contents


def make_ag_ui(*parts):
    message = {"id": "m1", "role": "user", "content": [{"type": "text", "text": "What?"}, *parts]}
    more = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return {"threadId": "t1", "runId": "r1", "messages": [message], **more}


def read_ag_ui_part(kind, source):
    return read_ag_ui(make_ag_ui({"type": kind, "source": source})).prompt.contents


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ({"url": PNG}, ImageContent(b"hi", "image/png")),
        ({"url": PDF, "filename": "a.pdf"}, FileContent(b"hi", "application/pdf", "a.pdf")),
        ({"url": PDF}, FileContent(b"hi", "application/pdf", "file")),
        ({"url": PDF, "filename": "..\\secret/b\n.pdf"}, FileContent(b"hi", "application/pdf", "b.pdf")),
        ({"url": "DATA:Audio/WAV;base64,aGk="}, AudioContent(b"hi", "audio/wav")),
        ({"url": "data:text/plain;charset=utf-8,hi%20you"}, FileContent(b"hi you", "text/plain", "file")),
        (
            {"url": "https://example.com/a?s=1", "mediaType": "image/png"},
            ImageContent(b"", "image/png", url="https://example.com/a?s=1"),
        ),
        ({"url": "http://example.com/a.png"}, ImageContent(b"", "image/png", url="http://example.com/a.png")),
        (
            {"url": "https://example.com/r.pdf", "mediaType": "application/pdf"},
            FileContent(b"", "application/pdf", "r.pdf", url="https://example.com/r.pdf"),
        ),
        (
            {"url": "https://93.184.215.14/r", "mediaType": "application/pdf", "filename": "r.pdf"},
            FileContent(b"", "application/pdf", "r.pdf", url="https://93.184.215.14/r"),
        ),
        (
            {"url": "https://example.com/s.mp3", "mediaType": "Audio/MPEG; rate=1"},
            AudioContent(b"", "audio/mpeg", url="https://example.com/s.mp3"),
        ),
    ],
)
def test_reads_a_file_of_vercel(part, content):
    assert read_vercel_file(**part) == (content,)


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({}, r"messages\[0\].parts\[1\].url: expected a str, got None"),
        ({"url": "file:///etc/passwd"}, "needs an http, https or data URL, such as .*, not 'file:///etc/passwd'"),
        ({"url": "javascript:alert(1)"}, "needs an http, https or data URL"),
        ({"url": "https://ada:secret@example.com/a.png"}, "contains a password"),
        ({"url": "https://example.com:99999/a.png"}, "port 99999 does not exist"),
        ({"url": f"https://example.com/{'a' * 9000}.png"}, "characters; the limit is"),
        ({"url": "https://example.com/a"}, "expected a media type, such as 'image/png', got None"),
        ({"url": "https://example.com/a.png", "mediaType": 7}, "expected a media type, such as 'image/png', got 7"),
        ({"url": "https://example.com/a", "mediaType": "png"}, "expected a media type, such as 'image/png', got 'png'"),
        ({"url": "https://example.com/a.mp4"}, "expected an image, audio or a file, got the media type 'video/mp4'"),
        ({"url": "data:video/mp4;base64,aGk="}, "expected an image, audio or a file, got the media type 'video/mp4'"),
        ({"url": "data:image/png;base64,?"}, "cannot decode the data URL"),
        ({"url": "data:image/png;base64,"}, "expected data, got none"),
        ({"url": PDF, "filename": 7}, "expected a str, got 7"),
    ],
)
def test_refuses_other_files_of_vercel(part, problem):
    with pytest.raises(ValueError, match=problem):
        read_vercel_file(**part)


@pytest.mark.parametrize(
    "host",
    [
        *("10.0.0.5", "127.0.0.1", "169.254.169.254", "[::1]", "[::ffff:10.0.0.5]", "localhost", "a.localhost"),
        *(
            "printer",
            "printer.local",
            "db.internal",
            "nas.lan",
            "x.home.arpa",
            "localhost.",
            "db.internal.",
            "127.0.0.1.",
        ),
        *("2130706433", "0x7f.1", "127.1", "\uff11\uff12\uff17.0.0.1", "10.0.0.%35", "DB.Internal"),
    ],
)
def test_refuses_urls_that_only_a_local_network_has(host):
    with pytest.raises(ValueError, match=r"^messages\[0\]"):
        read_vercel_file(url=f"http://{host}/a.png")


@pytest.mark.parametrize(
    ("kind", "source", "content"),
    [
        (
            "image",
            {"type": "url", "value": "https://example.com/a.png", "mimeType": "image/png"},
            ImageContent(b"", "image/png", url="https://example.com/a.png"),
        ),
        ("image", {"type": "url", "value": PNG}, ImageContent(b"hi", "image/png")),
        ("audio", {"type": "data", "value": "aGk=", "mimeType": "audio/wav"}, AudioContent(b"hi", "audio/wav")),
        (
            "document",
            {"type": "data", "value": "aGk=", "mimeType": "application/pdf"},
            FileContent(b"hi", "application/pdf", "file"),
        ),
        (
            "document",
            {"type": "url", "value": "https://example.com/r.pdf"},
            FileContent(b"", "application/pdf", "r.pdf", url="https://example.com/r.pdf"),
        ),
    ],
)
def test_reads_a_part_of_ag_ui(kind, source, content):
    assert read_ag_ui_part(kind, source) == (content,)
    read = RunAgentInput.model_validate(make_ag_ui({"type": kind, "source": source}))
    assert read_ag_ui(read).prompt.contents == (content,)


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ({"mimeType": "image/png", "data": "aGk="}, ImageContent(b"hi", "image/png")),
        (
            {"mimeType": "application/pdf", "url": "https://example.com/1", "filename": "r.pdf"},
            FileContent(b"", "application/pdf", "r.pdf", url="https://example.com/1"),
        ),
    ],
)
def test_reads_a_binary_part_of_ag_ui(part, content):
    assert read_ag_ui(make_ag_ui({"type": "binary", **part})).prompt.contents == (content,)


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({"type": "image"}, r"content\[1\].source: expected a source of the type data or url, got None"),
        (
            {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "application/pdf"}},
            "expected the media type of an image, got 'application/pdf'",
        ),
        (
            {"type": "document", "source": {"type": "url", "value": "https://example.com/a.png"}},
            "expected the media type of a document, got 'image/png'",
        ),
        ({"type": "audio", "source": {"type": "data", "value": "aGk="}}, "expected a media type, .* got None"),
        ({"type": "audio", "source": {"type": "data", "value": "?", "mimeType": "audio/wav"}}, "this is not base64"),
        ({"type": "image", "source": {"type": "url", "value": "http://10.0.0.5/a.png"}}, "a public host"),
        ({"type": "video", "source": {"type": "url", "value": "https://example.com/a.mp4"}}, "got the type 'video'"),
        ({"type": "binary", "mimeType": "image/png", "id": "upload_1"}, "expected data or a url, got an object with"),
    ],
)
def test_refuses_other_parts_of_ag_ui(part, problem):
    with pytest.raises(ValueError, match=problem):
        read_ag_ui(make_ag_ui(part))
