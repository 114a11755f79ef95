"""The Responses client before a judge that sees every attempt and its time."""

from collections.abc import Iterator

import pytest
from llmock.pytest_plugin import LLMock

from checkrein.providers.model import Access, Key, WireModel
from checkrein.providers.responses.client import OPENAI_RESPONSES
from checkrein.providers.settings import read_settings
from tests.unit.providers.resilience import FAULTS, mock_server, survive


@pytest.fixture(scope="module")
def mock() -> Iterator[LLMock]:
    with mock_server() as made:
        yield made


@pytest.mark.parametrize("name", FAULTS)
async def test_the_verdict_is_clean(mock: LLMock, name: str) -> None:
    access = Access("gpt-4o", mock.base_url("openai"), Key("test"))
    await survive(mock, FAULTS[name], WireModel(OPENAI_RESPONSES, access, read_settings({"timeout": "1"})))
