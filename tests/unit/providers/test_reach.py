"""Whether a server of models can be reached is known within a bound, and costs nothing."""

import pytest

from checkrein.providers.reach import headers_of, list_url, reach
from checkrein.providers.registry import PROVIDERS
from tests.unit.providers.wire_server import Answer, WireServer, error

KEY = "sk-test-0123456789abcdef"
JSON = "application/json"


async def test_a_server_that_lists_its_models_is_there_and_is_asked_once_with_the_key() -> None:
    listed = Answer((b'{"data": [{"id": "one"}, {"id": "two"}]}',), content_type=JSON)
    async with WireServer([listed]) as server:
        provider = PROVIDERS["compatible"]
        found = await reach(list_url(provider, server.url), headers_of(provider, KEY), seconds=30, secret=KEY)
        (request,) = server.received
    assert (found.is_there, found.models) == (True, ("one", "two"))
    assert (request.path, request.headers["authorization"]) == ("/v1/models", f"Bearer {KEY}")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (error(401, {"message": KEY}), "answers with status 401"),
        (Answer((b"{",), content_type=JSON, ending="cut"), "cannot be reached"),
        (Answer(ending="reset"), "cannot be reached"),
    ],
)
async def test_a_server_that_refuses_or_breaks_off_is_not(answer: Answer, said: str) -> None:
    async with WireServer([answer]) as server:
        found = await reach(list_url(PROVIDERS["compatible"], server.url), {}, seconds=30, secret=KEY)
    assert not found.is_there
    assert said in found.text
    assert KEY not in found.text


async def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    async with WireServer([Answer(ending="hold")]) as server:
        found = await reach(list_url(PROVIDERS["compatible"], server.url), {}, seconds=0.05)
    assert (found.is_there, found.text) == (False, "no answer within 0.05 s")


def test_each_provider_is_asked_in_its_own_way() -> None:
    anthropic, openai = PROVIDERS["anthropic"], PROVIDERS["openai"]
    assert list_url(anthropic, anthropic.base_url) == "https://api.anthropic.com/v1/models"
    assert list_url(anthropic, "http://127.0.0.1:1/v1/") == "http://127.0.0.1:1/v1/models"
    assert list_url(openai, openai.base_url) == "https://api.openai.com/v1/models"
    assert headers_of(anthropic, KEY)["x-api-key"] == KEY
    assert headers_of(openai, "") == {}
