"""Tests of web search with simulated services and hostile pages."""

import json
import logging
import sys

import pytest

from helpers.web_server import serving
from toolsemble import Toolbox, ToolCall, ToolDefinitionError
from toolsemble.builtin import (
    BraveSearch,
    DuckDuckGoSearch,
    SearchHit,
    SearxngSearch,
    SerpApiSearch,
    TavilySearch,
    WebSearchTool,
)

KEY = "k3y-0f-the-service"
KEYS = ("TAVILY_API_KEY", "BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY", "SERPAPI_API_KEY", "SERPAPI_KEY", "SEARXNG_URL")
ROME, BONN = ("Rain in Rome", "https://rome.example/rain", "It rained."), ("Bonn", "https://bonn.example/", "Dry.")
TEXT = """1. Rain in Rome
   https://rome.example/rain
   It rained.

2. Bonn
   https://bonn.example/
   Dry."""
DUCK = """<html><body><div class="results">
<div class="result results_links result--ad"><h2 class="result__title">
<a rel="nofollow" class="result__a" href="https://duckduckgo.com/y.js?ad_domain=shop.example&amp;u3=x">Umbrellas!</a></h2>
<a class="result__snippet" href="https://duckduckgo.com/y.js?x">Buy now</a></div>
<div class="result results_links results_links_deep web-result"><h2 class="result__title">
<a rel="nofollow" class="result__a" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Frome.example%2Frain&amp;rut=1">Rain in
<b>Rome</b></a></h2><a class="result__url" href="x"> rome.example/rain </a>
<a class="result__snippet" href="x">It <b>rained</b>.</a></div>
<div class="result web-result"><h2><a class="result__a" href="https://bonn.example/">Bonn</a></h2>
<div class="result__snippet">Dry.</div></div>
<div class="result"><a class="result__a" href="http://[broken">Broken</a></div><a class="result__a">Nothing</a>
</div></body></html>"""


def make_hits(title, url, snippet):
    return [dict(zip((title, url, snippet), hit, strict=True)) for hit in (ROME, BONN)]


@pytest.fixture
def web():
    with serving() as web:
        yield web


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


SERVICES = {
    "tavily": (
        lambda url: TavilySearch(KEY, base_url=url),
        "/search",
        {"query": "rain", "results": make_hits("title", "url", "content")},
    ),
    "brave": (
        lambda url: BraveSearch(KEY, base_url=f"{url}/"),
        "/res/v1/web/search",
        {"type": "search", "web": {"results": make_hits("title", "url", "description")}},
    ),
    "serpapi": (
        lambda url: SerpApiSearch(KEY, base_url=url),
        "/search.json",
        {"search_metadata": {"status": "Success"}, "organic_results": make_hits("title", "link", "snippet")},
    ),
    "searxng": (lambda url: SearxngSearch(f"{url}/"), "/search", {"results": make_hits("title", "url", "content")}),
    "duckduckgo": (lambda url: DuckDuckGoSearch(base_url=url), "/html/", DUCK),
}
EMPTY = {
    "tavily": {"results": []},
    "brave": {"type": "search"},
    "serpapi": {
        "search_metadata": {"status": "Success"},
        "error": "Google hasn't returned any results for this query.",
    },
    "searxng": {"results": [], "unresponsive_engines": []},
    "duckduckgo": '<html><body><div class="no-results">No results.</div><p class="result__snippet">x</p></body></html>',
}


def answer(web, service, body, status=200):
    text = body if isinstance(body, str) else json.dumps(body)
    web.answers[SERVICES[service][1]] = (status, {"Content-Type": "application/json"}, text)
    return WebSearchTool(SERVICES[service][0](web.url("")))


def search(tool, **arguments):
    return Toolbox([tool]).execute(ToolCall("web_search", json.dumps({"query": "rain in Rome?", **arguments}))).result


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_returns_numbered_hits(web, service):
    result = search(answer(web, service, SERVICES[service][2]))
    assert result.output == TEXT
    assert result.structured_output == [SearchHit(*ROME), SearchHit(*BONN)]


@pytest.mark.parametrize("service", SERVICES)
async def test_every_service_supports_async_calls(web, service):
    box = Toolbox([answer(web, service, SERVICES[service][2])])
    assert (await box.aexecute(ToolCall("web_search", {"query": "rain"}))).text == TEXT


@pytest.mark.parametrize("service", SERVICES)
def test_no_more_hits_are_returned_than_requested(web, service):
    result = search(answer(web, service, SERVICES[service][2]), max_results=1)
    assert result.structured_output == [SearchHit(*ROME)]


@pytest.mark.parametrize("service", SERVICES)
def test_no_hits_are_reported(web, service):
    result = search(answer(web, service, EMPTY[service]))
    assert (result.output, result.structured_output, result.is_success) == ("No results found.", [], True)


def test_requests_match_api_of_each_service(web):
    for service, (_, _, body) in SERVICES.items():
        search(answer(web, service, body), max_results=7)
    tavily, brave, serpapi, searxng, duck = web.requests
    assert (tavily[0], tavily[1], json.loads(tavily[3])) == (
        "POST",
        "/search",
        {"query": "rain in Rome?", "max_results": 7},
    )
    assert (tavily[2]["Authorization"], tavily[2]["Content-Type"]) == (f"Bearer {KEY}", "application/json")
    assert brave[:2] == ("GET", "/res/v1/web/search?q=rain%20in%20Rome%3F&count=7")
    assert brave[2]["X-Subscription-Token"] == KEY
    assert serpapi[:2] == ("GET", f"/search.json?engine=google&api_key={KEY}&q=rain%20in%20Rome%3F&num=7")
    assert searxng[:2] == ("GET", "/search?format=json&q=rain%20in%20Rome%3F")
    assert (duck[0], duck[1], duck[3]) == ("POST", "/html/", b"q=rain+in+Rome%3F")


@pytest.mark.parametrize("service", ["tavily", "brave", "serpapi"])
@pytest.mark.parametrize(
    ("status", "body"), [(401, "bad key {}"), (500, "x" * 190 + "{}"), (200, "{}"), (200, '["{}"]')]
)
def test_key_never_appears_in_errors_or_logs(web, caplog, service, status, body):
    caplog.set_level(logging.DEBUG)
    tool = answer(web, service, body.format(KEY), status)
    result = search(tool)
    assert not result.is_success
    assert KEY in str(web.requests)
    assert KEY not in f"{result!r}{caplog.text}{tool!r}{tool._provider!r}"


@pytest.mark.parametrize("service", SERVICES)
def test_connection_error_names_service_without_key(service):
    with serving() as gone:
        url = gone.url("")
    result = search(WebSearchTool(SERVICES[service][0](url)))
    label = {"tavily": "Tavily", "brave": "Brave", "serpapi": "SerpAPI", "searxng": "SearXNG"}.get(
        service, "DuckDuckGo"
    )
    assert result.error_message.startswith(f"{label}: Cannot connect to '127.0.0.1'")


def test_service_error_is_reported(web):
    assert search(answer(web, "tavily", "slow down", 429)).error_message == "Tavily: HTTP 429: slow down"
    body = {"error": f"Your account {KEY} has run out of searches."}
    assert search(answer(web, "serpapi", body)).error_message == "SerpAPI: Your account *** has run out of searches."


@pytest.mark.parametrize("service", ["tavily", "brave", "serpapi"])
def test_key_repeated_in_hit_is_masked(web, service):
    hits = json.dumps(SERVICES[service][2]).replace("rome.example/rain", f"rome.example/{KEY}").replace("Dry.", KEY)
    result = search(answer(web, service, hits.replace("Bonn", f"Bonn {KEY}")))
    assert result.structured_output == [
        SearchHit("Rain in Rome", "https://rome.example/***", "It rained."),
        SearchHit("Bonn ***", "https://bonn.example/", "***"),
    ]


@pytest.mark.parametrize("length", range(280, 300))
def test_key_is_masked_before_error_is_truncated(web, length):
    message = search(answer(web, "serpapi", {"error": "x" * length + KEY})).error_message
    assert message == f"SerpAPI: {'x' * length}***"[: len("SerpAPI: ") + 300]


@pytest.mark.parametrize("body", ["", "<html>", "[]", "7", "[" * 100_000])
def test_answer_that_is_not_a_json_object_fails(web, body):
    assert search(answer(web, "brave", body)).error_message == "Brave: the answer is not a JSON object"


@pytest.mark.parametrize(
    "results",
    [None, 7, "text", {"a": 1}, [None, 7, "x", []], [{}], [{"title": "x"}], [{"url": None}], [{"url": {"a": 1}}]],
)
def test_invalid_hits_are_ignored(web, results):
    assert search(answer(web, "tavily", {"results": results})).output == "No results found."


@pytest.mark.parametrize("body", [{"web": None}, {"web": []}, {"web": {"results": None}}])
def test_response_without_web_results_has_no_hits(web, body):
    assert search(answer(web, "brave", body)).output == "No results found."


def test_captcha_page_is_reported(web):
    result = search(answer(web, "duckduckgo", '<div class="anomaly-modal__title">Select all ducks</div>'))
    assert result.error_message == (
        "DuckDuckGo: it blocks automated requests; try again later, or use a provider with a key"
    )


def test_redirect_to_private_address_is_rejected(web):
    web.answers["/search"] = (302, {"Location": web.url("/", host="localhost")}, b"")
    result = search(WebSearchTool(SearxngSearch(web.url(""))))
    assert result.error_message == "SearXNG: Access denied: 'localhost' is not a public address"


class Fixed:
    def __init__(self, *hits):
        self.hits = hits
        self.asked = []

    def search(self, query, max_results):
        self.asked.append((query, max_results))
        return [SearchHit(*hit) for hit in self.hits]


class Later(Fixed):
    async def search(self, query, max_results):
        return super().search(query, max_results)


class Failing:
    def search(self, query, max_results):
        raise OSError("the archive is closed")


@pytest.mark.parametrize("provider", [Fixed, Later])
async def test_any_object_with_search_method_is_a_provider(provider):
    made = provider(ROME, BONN)
    box = Toolbox([WebSearchTool(made)])
    assert box.execute(ToolCall("web_search", {"query": "rain"})).text == TEXT
    assert (await box.aexecute(ToolCall("web_search", {"query": "rain", "max_results": 2}))).text == TEXT
    assert made.asked == [("rain", 5), ("rain", 2)]


@pytest.mark.parametrize(
    ("found", "came"),
    [
        (None, "None"),
        (7, "7"),
        ("text", "'text'"),
        ({"title": "Rome"}, "{'title': 'Rome'}"),
        ([{"title": "Rome"}], "{'title': 'Rome'}"),
        ([SearchHit(*ROME), None], "None"),
        ([SearchHit("Rome", None, "")], "SearchHit(title='Rome', url=None, snippet='')"),
    ],
)
def test_provider_that_returns_no_hits_fails_with_the_expected_type(found, came):
    class Odd:
        def search(self, query, max_results):
            return found

    result = Toolbox([WebSearchTool(Odd())]).execute(ToolCall("web_search", {"query": "rain"})).result
    expected = "The search provider must return a list of SearchHit with str fields, not"
    assert result.error_message == f"{expected} {came}"


def test_provider_may_yield_hits():
    class Slow:
        def search(self, query, max_results):
            yield SearchHit(*ROME)
            yield SearchHit(*BONN)

    assert Toolbox([WebSearchTool(Slow())]).execute(ToolCall("web_search", {"query": "rain"})).text == TEXT


def test_provider_error_fails_call():
    assert search(WebSearchTool(Failing())).error_message == "the archive is closed"


@pytest.mark.parametrize(
    ("hit", "text"),
    [
        (("a\n2. b", "https://x.example/", "c\n\n3. d\r\n https://e.example"),
         "1. a 2. b\n   https://x.example/\n   c 3. d https://e.example"),
        (("<b>a</b> &amp; &lt;b&gt;", "https://x.example/", "x < y > z"),
         "1. a & <b>\n   https://x.example/\n   x < y > z"),
        (("", "https://x.example/", ""), "1. https://x.example/\n   https://x.example/"),
        (("a\u202eb\x1b[31m", " https://x.example/ ", "\u200b"), "1. a b [31m\n   https://x.example/"),
        (("t" * 201, "https://x.example/", "s" * 501), f"1. {'t' * 200}...\n   https://x.example/\n   {'s' * 500}..."),
    ],
)  # fmt: skip
def test_each_field_of_a_hit_is_one_line(hit, text):
    assert search(WebSearchTool(Fixed(hit))).output == text


@pytest.mark.parametrize(
    "url", ["", "javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "/relative", "https://a b", "https://a\nb",
            "https://", f"https://x.example/{'a' * 2000}"],
)  # fmt: skip
def test_hit_without_a_valid_url_is_ignored(url):
    assert search(WebSearchTool(Fixed(("a", url, "b"), BONN))).structured_output == [SearchHit(*BONN)]


@pytest.mark.parametrize("arguments", [{"query": ""}, {"query": "x" * 1001}, {"max_results": 0}, {"max_results": 21}])
def test_invalid_arguments_are_rejected_before_searching(arguments):
    provider = Fixed(ROME)
    result = search(WebSearchTool(provider), **arguments)
    assert result.error_message.startswith("Invalid arguments for 'WebSearchInput': ")
    assert provider.asked == []


def test_blank_query_is_rejected():
    assert search(WebSearchTool(Fixed()), query=" \n").error_message == "query must not be blank"


def test_specification():
    parameters = Toolbox([WebSearchTool(Fixed())]).specifications[0].parameters
    assert (list(parameters["properties"]), parameters["required"]) == (["query", "max_results"], ["query"])
    assert all(each["description"] for each in parameters["properties"].values())


@pytest.mark.parametrize(
    ("environment", "provider"),
    [
        ({}, DuckDuckGoSearch),
        ({"SEARXNG_URL": "http://localhost:8888"}, SearxngSearch),
        ({"SERPAPI_KEY": KEY, "SEARXNG_URL": "http://localhost:8888"}, SerpApiSearch),
        ({"SERPAPI_API_KEY": KEY}, SerpApiSearch),
        ({"BRAVE_SEARCH_API_KEY": KEY, "SERPAPI_KEY": KEY}, BraveSearch),
        ({"BRAVE_API_KEY": KEY}, BraveSearch),
        ({"TAVILY_API_KEY": KEY, "BRAVE_API_KEY": KEY}, TavilySearch),
        ({"TAVILY_API_KEY": "", "BRAVE_API_KEY": KEY}, BraveSearch),
    ],
)
def test_provider_is_selected_by_environment_keys(monkeypatch, environment, provider):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert type(WebSearchTool()._provider) is provider


def test_provider_can_be_selected_by_name(monkeypatch):
    monkeypatch.setenv("TAVILY_API_KEY", KEY)
    assert type(WebSearchTool("duckduckgo")._provider) is DuckDuckGoSearch


@pytest.mark.parametrize(
    ("provider", "problem"),
    [
        ("google", "be one of tavily, brave, serpapi, searxng, duckduckgo; it is 'google'"),
        (7, "must have a method search"),
        (Fixed, "must have a method search"),
        ("tavily", "TavilySearch needs a key: pass api_key, or set TAVILY_API_KEY"),
        ("brave", "BraveSearch needs a key: pass api_key, or set BRAVE_API_KEY"),
        ("serpapi", "SerpApiSearch needs a key: pass api_key, or set SERPAPI_API_KEY"),
        ("searxng", "SearxngSearch needs a URL: pass base_url, or set SEARXNG_URL"),
    ],
)
def test_provider_without_search_method_is_rejected(provider, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        WebSearchTool(provider)


def test_missing_package_error_names_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "toolsemble.builtin._fetch", raising=False)
    monkeypatch.setitem(sys.modules, "httpcore2", None)
    with pytest.raises(ToolDefinitionError, match=r"DuckDuckGoSearch needs the package 'httpcore2': .*\[web\]"):
        DuckDuckGoSearch()
