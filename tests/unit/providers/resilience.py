"""The faults of `llmock`, a server that breaks answers and judges from every attempt and its time how a client took it; for every wire."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from llmock.pytest_plugin import LLMock
from llmock.testing import LLMockServer

from checkrein.agent.agent import Agent
from checkrein.agent.options import AgentOptions
from checkrein.loop.events import Completed, Failed, RunResult
from checkrein.loop.options import Retry
from checkrein.providers.model import WireModel
from checkrein.tools.function import tool

RETRY = Retry(attempts=4, first_seconds=0.1, factor=3.0)


@dataclass(frozen=True)
class Fault:
    """What is broken, and how a run must end: with a text, or with a code.

    `runs` is how often the tool must have run, None when no tool is offered.
    """

    breaks: Callable[[LLMock], object]
    code: str = ""
    runs: int | None = None


FAULTS: Mapping[str, Fault] = {
    "nothing": Fault(lambda mock: mock),
    "tools": Fault(lambda mock: mock.call_tool("add", {"a": 1, "b": 2}), runs=1),
    "rate limit": Fault(lambda mock: mock.rate_limit(times=1, retry_after=0.4)),
    "two rate limits": Fault(lambda mock: mock.rate_limit(times=2, retry_after=0.3)),
    "status 408": Fault(lambda mock: mock.fail(408)),
    "status 409": Fault(lambda mock: mock.fail(409)),
    "status 500": Fault(lambda mock: mock.fail(500, times=2)),
    "status 503": Fault(lambda mock: mock.fail(503)),
    "status 529": Fault(lambda mock: mock.fail(529)),
    "wrong key": Fault(lambda mock: mock.fail(401), code="MODEL_AUTH"),
    "no such model": Fault(lambda mock: mock.fail(404), code="MODEL_NOT_FOUND"),
    "refused": Fault(lambda mock: mock.fail(422), code="MODEL_REQUEST"),
    "context overflow": Fault(lambda mock: mock.context_overflow(), code="MODEL_CONTEXT"),
    "outage": Fault(lambda mock: mock.outage(), code="MODEL_OVERLOADED"),
    "reset": Fault(lambda mock: mock.disconnect(after_chunks=1)),
    "early end": Fault(lambda mock: mock.truncate(after_chunks=1)),
    "late end": Fault(lambda mock: mock.truncate(after_chunks=3)),
    # Paced, so that on a busy machine too the server is still writing when the client leaves: only then does the judge see that it left.
    "corrupt": Fault(lambda mock: mock.corrupt(after_chunks=1).pace(100)),
    "stall": Fault(lambda mock: mock.stall(after_chunks=1, seconds=3.0)),
    "slow first token": Fault(lambda mock: mock.slow_first_token(0.2)),
    "reset in a call": Fault(lambda mock: mock.call_tool("add", {"a": 1, "b": 2}).disconnect(after_chunks=2), runs=1),
    "early end in a call": Fault(lambda mock: mock.call_tool("add", {"a": 1, "b": 2}).truncate(after_chunks=2), runs=1),
    "malformed arguments": Fault(lambda mock: mock.call_tool("add", {"a": 1}).break_tool_call(), runs=0),
    "unknown tool": Fault(lambda mock: mock.call_tool("add", {"a": 1}).break_tool_call("unknown_tool"), runs=0),
}
"""By name. Where a scripted call was cut off, `llmock` makes a call of its own when it is asked again."""


@contextmanager
def mock_server() -> Generator[LLMock]:
    """Run a server for the tests of one module."""
    with LLMockServer() as server:
        yield LLMock(server)


async def survive(mock: LLMock, fault: Fault, model: WireModel) -> None:
    """Run an agent through a fault, and hold how it ended, how often its tool ran, and the server's verdict against what is promised."""
    ran: list[int] = []

    @tool
    async def add(a: int, b: int) -> int:
        ran.append(a + b)
        return a + b

    mock.reset()
    fault.breaks(mock)
    tools = [] if fault.runs is None else [add]
    async with Agent(model=model, tools=tools, options=AgentOptions(retry=RETRY), max_steps=4) as agent:
        result = await agent.prompt("What is one and two?")
    await model.aclose()
    _check_end(result, fault)
    if fault.runs is not None:
        assert len(ran) == fault.runs
    verdict = mock.verdict()
    verdict.assert_ok(strict=True)


def _check_end(result: RunResult, fault: Fault) -> None:
    if fault.code:
        assert isinstance(result, Failed), result
        assert result.error.code == fault.code, result.error
    else:
        assert isinstance(result, Completed), result
        assert result.final_text
