"""The default model of an agent."""

import logging
import operator
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.openai_wire import CHAT, completion, sent, whole
from helpers.web_server import serving
from toolsemble import Agent, ToolConfigurationError
from toolsemble._runtime.extras import install_command
from toolsemble._vocabulary.provider_list import PROVIDERS
from toolsemble.models import (
    Offer,
    OpenAIModel,
    _model_list as model_list,
    _registry as registry,
    found,
    model_of,
    offers,
)
from toolsemble.models.openai._compatible import SERVERS

NOWHERE = "127.0.0.1:9"
LOCAL = ["ollama", "lmstudio", "llamacpp", "vllm"]
KEYS = [
    "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "MISTRAL_API_KEY",
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION", "AWS_DEFAULT_REGION",
    "TOOLSEMBLE_CHAT_MODEL", *(server.key_variable for server in SERVERS.values()),
]  # fmt: skip
SECRET = "sk-very-secret"  # noqa: S105 - it opens nothing


@pytest.fixture(autouse=True)
def _clear_environment(monkeypatch):
    """Take everything away that a machine may offer."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    for name in LOCAL:
        monkeypatch.setenv(SERVERS[name].host_variable, NOWHERE)
    monkeypatch.setattr(model_list, "SECONDS", 30.0)  # this machine may be busy
    set_weights(monkeypatch, None)


def set_weights(monkeypatch, path, package="xllamacpp"):
    """Let the weights of the embedded model be at a path, and its program be there."""
    monkeypatch.setitem(
        sys.modules, "toolsemble.models._local.weights.cache", SimpleNamespace(located=lambda name: path)
    )
    spec = SimpleNamespace(__spec__=SimpleNamespace(name=package))
    monkeypatch.setitem(sys.modules, package, spec)


def unavailable_offer(name, why):
    return Offer(name, available=False, why=why)


def available_offer(name, why):
    return Offer(name, available=True, why=why)


NOTHING = [
    unavailable_offer("openai:gpt-6-luna", "OPENAI_API_KEY is not set"),
    unavailable_offer("anthropic:claude-haiku-5-5", "ANTHROPIC_API_KEY is not set"),
    unavailable_offer("google:gemini-3.5-flash-lite", "GEMINI_API_KEY and GOOGLE_API_KEY are not set"),
    unavailable_offer("mistral:mistral-small-latest", "MISTRAL_API_KEY is not set"),
    unavailable_offer(
        "bedrock:global.amazon.nova-2-lite-v1:0",
        "neither AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY nor AWS_BEARER_TOKEN_BEDROCK is set",
    ),
    *(unavailable_offer(name, "nothing answers at http://127.0.0.1:9/v1") for name in LOCAL),
    unavailable_offer("local", "its weights are not downloaded: run `toolsemble models pull`"),
]


def test_offers_are_listed_in_order_with_reasons():
    assert offers() == NOTHING


def test_no_model_error_lists_reasons_and_next_steps():
    with pytest.raises(ToolConfigurationError) as caught:
        Agent()
    reasons = "; ".join(f"{offer.name}: {offer.why}" for offer in NOTHING)
    assert str(caught.value) == (
        f"The agent has no model, and none was found: {reasons}. Set one of the keys, start a server, or name a model: "
        "Agent('openai:gpt-6-luna'), or TOOLSEMBLE_CHAT_MODEL=openai:gpt-6-luna"
    )


@pytest.mark.parametrize(
    ("variables", "place", "why"),
    [
        (["OPENAI_API_KEY"], 0, "OPENAI_API_KEY is set"),
        (["ANTHROPIC_API_KEY"], 1, "ANTHROPIC_API_KEY is set"),
        (["GEMINI_API_KEY"], 2, "GEMINI_API_KEY is set"),
        (["GOOGLE_API_KEY"], 2, "GOOGLE_API_KEY is set"),
        (["GOOGLE_API_KEY", "GEMINI_API_KEY"], 2, "GEMINI_API_KEY is set"),
        (["MISTRAL_API_KEY"], 3, "MISTRAL_API_KEY is set"),
        (["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"], 4, "AWS credentials and a region are set"),
        (["AWS_BEARER_TOKEN_BEDROCK", "AWS_DEFAULT_REGION"], 4, "AWS credentials and a region are set"),
    ],
)
def test_key_makes_its_provider_available(monkeypatch, variables, place, why):
    for name in variables:
        monkeypatch.setenv(name, SECRET)
    name = NOTHING[place].name
    assert offers() == [*NOTHING[:place], available_offer(name, why), *NOTHING[place + 1 :]]


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"AWS_ACCESS_KEY_ID": "a"}, NOTHING[4].why),
        ({"AWS_REGION": "r"}, NOTHING[4].why),
        (
            {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
            "there are AWS credentials, but AWS_REGION is not set",
        ),
    ],
)
def test_incomplete_aws_settings_are_not_enough(monkeypatch, variables, why):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert offers()[4] == unavailable_offer(NOTHING[4].name, why)


def test_blank_key_counts_as_missing(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", " \n")
    assert offers() == NOTHING


@pytest.mark.parametrize(
    ("variable", "package", "absent", "place", "extra"),
    [
        ("OPENAI_API_KEY", "openai", "openai", 0, "openai"),
        ("ANTHROPIC_API_KEY", "anthropic", "anthropic", 1, "anthropic"),
        ("GEMINI_API_KEY", "google.genai", "google.genai", 2, "google"),
        ("GEMINI_API_KEY", "google.genai", "google", 2, "google"),
        ("MISTRAL_API_KEY", "mistralai", "mistralai", 3, "mistral"),
        ("AWS_BEARER_TOKEN_BEDROCK", "boto3", "boto3", 4, "bedrock"),
    ],
)
def test_key_without_package_names_extra(monkeypatch, variable, package, absent, place, extra):
    monkeypatch.setenv(variable, SECRET)
    monkeypatch.setenv("AWS_REGION", "r")
    monkeypatch.delitem(sys.modules, package, raising=False)  # an earlier test may have loaded it
    monkeypatch.setitem(sys.modules, absent, None)
    offer = offers()[place]
    why = "AWS credentials and a region are" if extra == "bedrock" else f"{variable} is"
    problem = f"{why} set, but the package '{package}' is not installed: {install_command(extra)}"
    assert offer == unavailable_offer(NOTHING[place].name, problem)


def test_embedded_model_needs_package_and_weights(monkeypatch):
    set_weights(monkeypatch, Path("small.gguf"))
    assert offers()[-1] == available_offer("local", "its weights are at small.gguf")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    assert offers()[-1] == unavailable_offer(
        "local", f"the package 'xllamacpp' is not installed: {install_command('local')}"
    )


def test_missing_weights_file_makes_embedded_model_unavailable(monkeypatch):
    def refused(name):
        raise ToolConfigurationError("TOOLSEMBLE_MODEL: there is no file 'x.gguf'")

    monkeypatch.setattr(sys.modules["toolsemble.models._local.weights.cache"], "located", refused)
    assert offers()[-1] == unavailable_offer("local", "TOOLSEMBLE_MODEL: there is no file 'x.gguf'")


def test_invalid_host_makes_its_server_unavailable(monkeypatch):
    monkeypatch.setenv("VLLM_HOST", "box:port")
    assert offers()[8] == unavailable_offer(
        "vllm", "VLLM_HOST must be a host, a host with a port, or a URL, not 'box:port'"
    )


@pytest.mark.parametrize("name", LOCAL)
def test_running_local_server_is_used_with_first_model(monkeypatch, caplog, name):
    with serving() as web:
        monkeypatch.setenv(SERVERS[name].host_variable, web.url())
        web.answers["/v1/models"] = whole({"data": [{"id": "qwen3:8b"}, {"id": "other"}]})
        web.answers[CHAT] = whole(completion({"content": "hi"}))
        with caplog.at_level(logging.INFO, "toolsemble.models"):
            assert Agent().run_sync("hello").text == "hi"
        assert sent(web)["model"] == "qwen3:8b"
        assert caplog.messages == [f"Using the model {name}:qwen3:8b: it is served at {web.url('/v1')}"]


def test_server_without_package_names_extra(monkeypatch):
    with serving() as web:
        monkeypatch.setenv("OLLAMA_HOST", web.url())
        web.answers["/v1/models"] = whole({"data": [{"id": "qwen3:8b"}]})
        monkeypatch.setitem(sys.modules, "openai", None)
        why = f"it is served at {web.url('/v1')}, but the package 'openai' is not installed"
        why += f": {install_command('openai')}"
        assert offers()[5] == unavailable_offer("ollama:qwen3:8b", why)


def test_first_available_model_is_used_and_logged_without_key(monkeypatch, caplog):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, SECRET)
    set_weights(monkeypatch, Path("small.gguf"))
    with caplog.at_level(logging.DEBUG):
        model = model_of(None)
    assert repr(model) == "OpenAIModel('gpt-6-luna', api='responses')"
    assert caplog.record_tuples == [
        ("toolsemble.models", logging.INFO, "Using the model openai:gpt-6-luna: OPENAI_API_KEY is set")
    ]
    assert SECRET not in caplog.text


def test_servers_are_not_probed_when_a_key_is_set(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with serving() as web:
        monkeypatch.setenv("OLLAMA_HOST", web.url())
        assert isinstance(found(), OpenAIModel)
        assert web.requests == []


def test_embedded_model_is_used_last(monkeypatch, caplog):
    set_weights(monkeypatch, Path("small.gguf"))
    monkeypatch.setitem(sys.modules, "toolsemble.models._local.model", SimpleNamespace(model_from_name=operator.concat))
    with caplog.at_level(logging.INFO, "toolsemble.models"):
        assert found() == "local"
    assert caplog.messages == ["Using the model local: its weights are at small.gguf"]


def test_model_named_in_the_environment_takes_precedence(monkeypatch, caplog):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("TOOLSEMBLE_CHAT_MODEL", " vllm:qwen3 ")
    assert offers()[:2] == [
        available_offer("vllm:qwen3", "TOOLSEMBLE_CHAT_MODEL is set"),
        available_offer("openai:gpt-6-luna", "OPENAI_API_KEY is set"),
    ]
    with caplog.at_level(logging.INFO, "toolsemble.models"):
        assert found().name == "qwen3"
    assert caplog.messages == ["Using the model vllm:qwen3: TOOLSEMBLE_CHAT_MODEL is set"]


def test_unknown_model_in_environment_is_an_error(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("TOOLSEMBLE_CHAT_MODEL", "unknown:nothing")
    with pytest.raises(ToolConfigurationError, match="Unknown model 'unknown:nothing'"):
        Agent()


def test_default_names_resolve_to_providers():
    assert [registry.find_module(offer.name.partition(":")[0]) for offer in offers()[:5]] == [
        each.model_module for each in PROVIDERS.values() if each.models
    ]
