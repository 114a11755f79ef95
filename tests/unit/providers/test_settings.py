"""Settings and keys: what may be set, and where a key may come from."""

import pytest

from checkrein.errors import ModelError, TaskError
from checkrein.providers.catalogue import window_of
from checkrein.providers.registry import PROVIDERS, access_of, compatible, openai
from checkrein.providers.settings import ProviderSettings, read_settings, settings_of_request
from checkrein.values import JsonObject


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in PROVIDERS.values():
        monkeypatch.delenv(provider.key_variable, raising=False)
        monkeypatch.delenv(provider.url_variable, raising=False)


def test_texts_of_a_command_line_become_what_a_setting_needs() -> None:
    given = {
        "base_url": "http://127.0.0.1:1/v1",
        "timeout": "12.5",
        "max_output_tokens": "100",
        "context_window": "32000",
        "temperature": "0",
        "cache": "false",
        "parallel_tool_calls": "true",
        "response_schema": '{"type": "object"}',
        "extra": '{"top_k": 20}',
        "reasoning_back": "all",
    }
    assert read_settings(given) == ProviderSettings(
        base_url="http://127.0.0.1:1/v1",
        timeout=12.5,
        max_output_tokens=100,
        context_window=32_000,
        temperature=0.0,
        cache=False,
        parallel_tool_calls=True,
        response_schema=JsonObject({"type": "object"}),
        extra=JsonObject({"top_k": 20}),
        reasoning_back="all",
    )


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("temprature", "1", "the settings are base_url, "),
        ("api_key", "x", "is no setting"),
        ("temperature", "hot", "float"),
        ("timeout", "0", ">"),
        ("timeout", "nan", "float"),
        ("max_output_tokens", "0", ">= 1"),
        ("context_window", "0", ">= 1"),
        ("tool_choice", "maybe", "Invalid enum"),
        ("base_url", "localhost:8000", "write it as http"),
        ("base_url", "file:///etc/passwd", "write it as http"),
        ("base_url", "https://me:word@host/v1", "names a user"),
        ("response_schema", "[1]", "no JSON object"),
        ("response_schema", "{", "not JSON"),
        ("response_name", "a b", "regex"),
    ],
)
def test_a_setting_that_is_none_is_refused_with_its_name(key: str, value: str, said: str) -> None:
    with pytest.raises(TaskError, match=said) as caught:
        read_settings({key: value})
    assert caught.value.key == key


def test_a_request_sets_its_own_but_not_the_address() -> None:
    settings = read_settings({"temperature": "1", "system": "short"})
    assert settings_of_request(settings, JsonObject()) is settings
    changed = settings_of_request(settings, JsonObject({"temperature": 0.5}))
    assert (changed.temperature, changed.system) == (0.5, "short")
    for wrong in ({"base_url": "http://elsewhere"}, {"context_window": 1}, {"nonsense": 1}, {"temperature": "hot"}):
        with pytest.raises(ModelError) as caught:
            settings_of_request(settings, JsonObject(wrong))
        assert (caught.value.code, caught.value.is_transient) == ("MODEL_REQUEST", False)


def test_a_model_needs_a_name_a_key_and_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TaskError, match="OPENAI_API_KEY: the key is missing"):
        openai("gpt-x")
    with pytest.raises(TaskError, match="nothing says where the server is"):
        compatible("local")
    with pytest.raises(TaskError, match="names no model"):
        compatible("", {"base_url": "http://127.0.0.1:1"})
    assert compatible("local", {"base_url": "http://127.0.0.1:1"}).name == "local"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment")
    made = openai("gpt-x")
    assert "sk-from" not in repr(made)
    assert repr(made) == "WireModel(responses, 'gpt-x' at https://api.openai.com/v1)"


def test_an_address_of_somebody_else_has_no_price_of_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    usual = access_of(PROVIDERS["openai"], "m", read_settings({}))
    assert (usual.base_url, usual.provider) == ("https://api.openai.com/v1", "openai")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:2/v1")
    other = access_of(PROVIDERS["openai"], "m", read_settings({}))
    assert (other.base_url, other.provider) == ("http://127.0.0.1:2/v1", "")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://me:word@127.0.0.1:2/v1")
    with pytest.raises(TaskError) as caught:
        access_of(PROVIDERS["openai"], "m", read_settings({}))
    assert "word" not in str(caught.value)
    said = access_of(PROVIDERS["openai"], "m", read_settings({"base_url": "http://127.0.0.1:3/v1"}))
    assert said.base_url == "http://127.0.0.1:3/v1"


def test_the_window_of_a_model_is_what_is_set_else_what_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    assert openai("gpt-4o").context_window == window_of("gpt-4o", provider="openai") == 128_000
    assert openai("gpt-4o", {"context_window": 9_000}).context_window == 9_000
    address = {"base_url": "http://127.0.0.1:1/v1"}
    assert compatible("local", address).context_window is None
    assert compatible("local", {**address, "context_window": "4096"}).context_window == 4_096
    assert [window_of("nobody-has-it", provider="openai"), window_of("gpt-4o")] == [None, None]
