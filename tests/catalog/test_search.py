"""The search of a catalog: ranking, other scripts, the floor, and queries of any size."""

import random
import subprocess
import sys
import time

import pytest

from toolsemble import Catalog, SchemaTool, ToolCall


def make(name, description="", parameters=None):
    return SchemaTool(name, description, lambda given: "", parameters)


def found(catalog, query, limit=5):
    return [each.name for each in catalog.search(query, limit)]


@pytest.fixture(scope="module")
def office():
    return Catalog(
        [
            make("sendMail", "Send an e-mail to one or more people."),
            make("calendar_create_event", "Create an event in the calendar."),
            make("calendar_list_events", "List the events of a day."),
            make("fx_convert", "Convert an amount from one currency to another."),
            make("weather", "The weather forecast for a city."),
            make(
                "book",
                "Make a reservation.",
                {"properties": {"room": {"type": "string", "description": "The kind of hotel room"}}},
            ),
            make("paint", "Mix a color.", {"properties": {"tone": {"enum": ["crimson", "turquoise", 5]}}}),
            make("http_403_bypass", "Analyze forbidden pages."),
        ]
    )


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("send mail", "sendMail"),
        ("e-mail to Bob", "sendMail"),
        ("SEND MAIL", "sendMail"),
        ("new event in my calendar", "calendar_create_event"),
        ("creating calendar events", "calendar_create_event"),
        ("currency conversion", "fx_convert"),
        ("convert 150 dollars to another currency", "fx_convert"),
        ("Will it rain in Oslo on March 3? Check the weather.", "weather"),
        ("WEATHER", "weather"),
        ("a hotel room", "book"),
        ("turquoise tone", "paint"),
        ("403", "http_403_bypass"),
        ('analyze "forbidden" pages', "http_403_bypass"),
        ("wéather", "weather"),
        ("\uff57\uff45\uff41\uff54\uff48\uff45\uff52", "weather"),
    ],
)
def test_finds_the_right_tool_first(office, query, name):
    assert found(office, query)[:1] == [name]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "   \n\t ",
        "the of and to",
        "what is it",
        ".*",
        "^(a+)+$",
        "[[[(((\\",
        "?!…—",
        "\x00\x1b[2J",
        "🎉🎉🎉",
        "\ud800",
        "bake a cake with chocolate and cherries",
        "quantum chromodynamics",
        "天气",
    ],
)
def test_finds_nothing_where_nothing_fits(office, query):
    assert found(office, query) == []


@pytest.mark.parametrize(
    "query", ["weather " * 1_300_000, "x" * 10_000_000, "ab " * 3_000_000, "天" * 3_000_000, "'" * 10_000_000]
)
def test_a_query_of_10_megabytes_is_searched_at_once(office, query):
    started = time.process_time()
    assert found(office, query) in (["weather"], [])
    assert time.process_time() - started < 1


def test_only_the_first_words_of_a_query_count(office):
    invented = " ".join(f"w{chr(97 + number // 26)}{chr(97 + number % 26)}x" for number in range(300))
    assert found(office, f"{invented} weather forecast") == []


def test_the_forms_of_a_word_are_equal():
    catalog = Catalog([make("planner", "Plans trips"), make("boxes", "Washes cities")])
    for query in ("planned", "planning a trip"):
        assert found(catalog, query) == ["planner"]
    for query in ("box", "wash the city"):
        assert found(catalog, query) == ["boxes"]


def test_only_the_start_of_a_long_query_counts(office):
    assert found(office, "weather forecast" + " zzz" * 2_000_000)[:1] in ([], ["weather"])
    assert found(office, "z" * 5_000 + " weather forecast") == []


def test_the_model_can_search_with_anything(office):
    catalog = Catalog([make(f"tool_{number}", "Send an e-mail") for number in range(40)], budget=200)
    box = catalog.box()
    for query in ("", ".*", "\x00", "x" * 1_000_000, "the"):
        reply = box.execute(ToolCall("find_tools", {"query": query}))
        assert not reply.is_error
        assert reply.text.startswith("No tool fits ")
        assert len(reply.text) < 600


@pytest.mark.parametrize(
    ("name", "description", "query"),
    [
        ("zh", "查询城市的天气预报", "明天的天气怎么样"),
        ("ja", "都市の天気予報を調べる", "東京の天気予報"),
        ("ko", "도시의 날씨를 알려줍니다", "서울 날씨"),
        ("th", "พยากรณ์อากาศสำหรับเมือง", "พยากรณ์อากาศ"),
        ("hi", "शहर का मौसम बताता है", "दिल्ली का मौसम"),
        ("ar", "حالة الطقس في المدينة", "الطقس في القاهرة"),
        ("ru", "Прогноз погоды для города", "прогноз погоды"),
        ("vi", "Tìm thời tiết ở địa điểm", "thời tiết Hà Nội"),
        ("de", "Wettervorhersage für eine Stadt", "wettervorhersage fur Berlin"),
        ("el", "Πρόγνωση καιρού στην πόλη", "ΠΡΌΓΝΩΣΗ ΚΑΙΡΟΎ"),
        ("tr", "Şehrin hava durumu", "hava durumu"),
    ],
)
def test_finds_tools_that_are_described_in_other_scripts(name, description, query):
    others = [make("pay", "Pay an invoice of a supplier"), make("close", "Close a ticket of the help desk")]
    assert found(Catalog([*others, make(name, description)]), query) == [name]


def test_names_count_more_than_descriptions_and_those_more_than_parameters():
    tools = [
        make("a", "Does it", {"properties": {"ticket": {"type": "string"}}}),
        make("b", "Closes the ticket"),
        make("ticket", "Does it"),
    ]
    assert found(Catalog(tools), "ticket") == ["ticket", "b", "a"]


def test_values_of_a_task_do_not_count_as_words_of_it(office):
    assert found(office, "weather in Novosibirsk, Krasnoyarsk and Yekaterinburg on 2026-05-03 at 14:30") == ["weather"]


def test_names_count_where_everything_is_in_capitals():
    catalog = Catalog([make("weather", "The Weather Of A City"), make("pay", "Pay An Invoice")])
    assert found(catalog, "Pay Invoice Now") == ["pay"]


def test_questions_stand_for_what_they_ask():
    catalog = Catalog([make("distance", "The distance between cities"), make("price", "The price of a product")])
    assert found(catalog, "how far is it between the cities")[:1] == ["distance"]
    assert found(catalog, "how much is the product")[:1] == ["price"]


def test_a_synonym_stands_for_a_word():
    assert found(Catalog([make("film_info", "Show a film")]), "movie") == ["film_info"]


def test_nested_parameters_are_searched():
    nested = {
        "properties": {
            "order": {
                "type": "object",
                "properties": {"lines": {"type": "array", "items": {"properties": {"marzipan": {"type": "string"}}}}},
            },
            "either": {"anyOf": [{"properties": {"nougat": {"type": "string"}}}, {"type": "null"}]},
            "more": {"type": "object", "additionalProperties": {"description": "pralines"}},
        },
    }
    catalog = Catalog([make("shop", "Order", nested)])
    for word in ("marzipan", "nougat", "pralines"):
        assert found(catalog, word) == ["shop"]


def test_a_schema_of_any_size_is_read_in_part():
    wide = {"properties": {f"p{number}": {"type": "string", "description": "text"} for number in range(5_000)}}
    assert found(Catalog([make("wide", "Close a ticket", wide)]), "close a ticket") == ["wide"]


def test_no_more_tools_are_found_than_asked_for(office):
    assert len(found(office, "calendar event", 1)) == 1


def test_a_catalog_without_tools_finds_nothing():
    assert Catalog([]).search("anything") == []


@pytest.mark.slow
def test_a_catalog_of_10000_tools_is_searched_and_offered():
    words = ["invoice", "ticket", "mail", "flight", "hotel", "song", "price", "stock", "file", "image"]
    tools = [
        make(f"{words[number % 10]}_{words[number // 10 % 10]}_{number}", f"Update the {words[number % 7]} {number}")
        for number in range(10_000)
    ]
    needle = make("teleport_elephant", "Teleport an elephant to another place")
    catalog = Catalog([*tools[:5_000], needle, *tools[5_000:]], budget=1_000)
    box = catalog.box()
    assert box.names == ["find_tools"]
    assert found(catalog, "teleport an elephant") == ["teleport_elephant"]
    reply = box.execute(ToolCall("find_tools", {"query": "teleport an elephant"}))
    assert reply.result.attributes["found"] == ["teleport_elephant"]
    assert "not loaded" in box.execute(ToolCall("teleport_elephant")).text


WORDS = ["price", "flight", "city", *(f"{start}{end}" for start in "bdfgklmnprst" for end in ("aron", "ilet", "ulm"))]


def make_many(number):
    """Return tools with texts of ordinary length, the same each time."""
    dice = random.Random(5)  # noqa: S311 - the same each time

    def words(count):
        return " ".join(dice.choices(WORDS, k=count))

    def parameters():
        return {"properties": {dice.choice(WORDS): {"description": words(8)} for _ in range(4)}}

    return [make(f"{dice.choice(WORDS)}_{each}", words(15), parameters()) for each in range(number)]


def measure_least(work, times):
    """Return the least time of the processor that some work takes; what else the machine does only adds to it."""
    taken = []
    for _ in range(times):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return min(taken)


@pytest.mark.slow
def test_the_time_of_a_search_grows_no_faster_than_the_number_of_tools():
    tools = make_many(2_000)
    small, large = Catalog(tools[:500]), Catalog(tools)
    query = "What is the price of a flight to the city of Rome?"
    assert small.search(query)
    assert large.search(query)
    assert measure_least(lambda: large.search(query), 30) < 12 * measure_least(lambda: small.search(query), 30)


def test_a_plain_call_loads_nothing_of_catalogs():
    program = """
import sys
from toolsemble import Agent, Toolbox, ToolCall, tool
from toolsemble.testing import ScriptedModel
add = tool("add", "Adds")(lambda a, b: a + b)
assert Toolbox([add]).execute(ToolCall("add", {"a": 1, "b": 2})).text == "3"
assert Agent(ScriptedModel(["Done."]), [add]).run_sync("Go").text == "Done."
print([name for name in sys.modules if "catalog" in name])
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"
