"""What does it cost to read a model's answer: decoded, over `json.loads` of the same bytes; and asked for, over the provider's bare SDK?

The answers are made here, as the three wires send them: a long text in pieces of a word, and parallel calls whose arguments come in pieces. The floor of decoding is
`json.loads` of the data of each event, which does no checking and makes no message. The floor of a request is the SDK alone, asked for the same answer of the same server on
this machine, its events iterated to the end; a request of ours is that of `WireModel`: encoded, sent through the same SDK, read, watched for progress, decoded and priced. The
server is a part of this process and of both sides, and writes an answer at once. Targets: decoding a text costs at most twice the floor,
and calls, whose arguments are parsed as well, four times; a chunk costs at most 15 % more in an answer ten times as long; a request costs at most 1.25 times, and a chunk at
most as much as with the bare SDK.

Processor time is measured, not the wall's, and the smallest of the repetitions counts. `--quick` does a part of it, once. The script reports; it exits 1 only when something
could not be run.
"""

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from checkrein import CancelSignal, UserMessage
from checkrein.ports.model import ModelRequest
from checkrein.providers.anthropic.client import ANTHROPIC_MESSAGES
from checkrein.providers.chat.client import OPENAI_CHAT
from checkrein.providers.model import Access, Key, WireModel, WireParts
from checkrein.providers.responses.client import OPENAI_RESPONSES
from checkrein.providers.settings import ProviderSettings
from checkrein.providers.stream import WireEvent, read_response

MODEL, PROVIDER = "gpt-4.1-mini", "openai"
WORDS = ("The ", "sales ", "of “2013” ", "were ", "$477.53,\n", "after ", "Zürich’s ", "and ", "\\n ", "東京 ")
ARGUMENT = '"{number}": {{"query": "SELECT sum(total) FROM invoices", "limit": {number}}}'
CALLS = 8
SHORT_PIECES = 1
TARGET_TEXT = 2.0
TARGET_CALLS = 4.0
TARGET_GROWTH = 1.15
TARGET_REQUEST = 1.25
TARGET_CHUNK = 1.0
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
KEY = "none"


class Figure(msgspec.Struct, frozen=True):
    """One line of the table."""

    case: str
    value: float
    unit: str
    floor: float | None = None
    ratio: float | None = None
    target: str = ""
    is_met: bool | None = None


# The answers, as the wires send them.

Body = Mapping[str, object]


def words(pieces: int) -> list[str]:
    """Return the pieces of a text."""
    return [WORDS[number % len(WORDS)] for number in range(pieces)]


def arguments(pieces: int) -> list[str]:
    """Return the pieces of the arguments of one call, which are JSON only together."""
    inner = [ARGUMENT.format(number=number) + ("," if number < pieces - 1 else "") for number in range(pieces)]
    return ["{", *inner, "}"]


def _named(events: Iterator[Body]) -> list[WireEvent]:
    """Return events whose name is their type, too."""
    return [WireEvent(str(event["type"]), json.dumps(event, ensure_ascii=False)) for event in events]


def chat_text(pieces: int) -> list[WireEvent]:
    """Return an answer in words over Chat Completions."""
    return _chat([{"content": word} for word in words(pieces)], "stop")


def chat_calls(pieces: int) -> list[WireEvent]:
    """Return an answer in calls over Chat Completions."""
    deltas: list[Body] = []
    for call in range(CALLS):
        function = {"name": "sql_query", "arguments": ""}
        deltas.append({"tool_calls": [{"index": call, "id": f"call_{call}", "type": "function", "function": function}]})
        deltas += [{"tool_calls": [{"index": call, "function": {"arguments": text}}]} for text in arguments(pieces)]
    return _chat(deltas, "tool_calls")


def _chat(deltas: Sequence[Body], finish: str) -> list[WireEvent]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    choices: list[Body] = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "logprobs": None, "finish_reason": finish})
    events: list[Body] = [
        {**head, "system_fingerprint": "fp_1", "choices": [choice], "usage": None} for choice in choices
    ]
    usage = {"prompt_tokens": 12, "completion_tokens": 9, "total_tokens": 21}
    events.append({**head, "choices": [], "usage": usage})
    return [*(WireEvent("", json.dumps(event, ensure_ascii=False)) for event in events), WireEvent("", "[DONE]")]


def responses_text(pieces: int) -> list[WireEvent]:
    """Return an answer in words over Responses."""
    said = words(pieces)
    place = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
    part: Body = {"type": "output_text", "annotations": [], "logprobs": []}
    item: Body = {"id": "msg_0", "type": "message", "role": "assistant"}
    whole: Body = {**item, "status": "completed", "content": [{**part, "text": "".join(said)}]}
    events: list[Body] = [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *({"type": "response.output_text.delta", **place, "delta": word, "logprobs": []} for word in said),
        {"type": "response.output_text.done", **place, "text": "".join(said), "logprobs": []},
        {"type": "response.content_part.done", **place, "part": whole["content"]},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
    ]
    return _responses(events, [whole])


def responses_calls(pieces: int) -> list[WireEvent]:
    """Return an answer in calls over Responses."""
    events: list[Body] = []
    outputs: list[Body] = []
    said = arguments(pieces)
    for call in range(CALLS):
        place = {"item_id": f"fc_{call}", "output_index": call}
        item = {"id": f"fc_{call}", "type": "function_call", "call_id": f"call_{call}", "name": "sql_query"}
        outputs.append({**item, "status": "completed", "arguments": "".join(said)})
        begun = {**item, "status": "in_progress", "arguments": ""}
        events += [
            {"type": "response.output_item.added", "output_index": call, "item": begun},
            *({"type": "response.function_call_arguments.delta", **place, "delta": text} for text in said),
            {"type": "response.function_call_arguments.done", **place, "arguments": "".join(said)},
            {"type": "response.output_item.done", "output_index": call, "item": outputs[-1]},
        ]
    return _responses(events, outputs)


def _responses(events: Sequence[Body], outputs: Sequence[Body]) -> list[WireEvent]:
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": MODEL, "error": None}
    usage = {"input_tokens": 12, "output_tokens": 9, "total_tokens": 21}
    begun: Body = {**response, "status": "in_progress", "output": [], "usage": None}
    ended = {**response, "status": "completed", "output": outputs, "usage": usage}
    all_events: list[Body] = [
        {"type": "response.created", "response": begun},
        *events,
        {"type": "response.completed", "response": ended},
    ]
    return _named({**event, "sequence_number": number} for number, event in enumerate(all_events))


def messages_text(pieces: int) -> list[WireEvent]:
    """Return an answer in words over Messages."""
    block = {"type": "text", "text": ""}
    deltas = [{"type": "text_delta", "text": word} for word in words(pieces)]
    return _messages([(block, deltas)], "end_turn")


def messages_calls(pieces: int) -> list[WireEvent]:
    """Return an answer in calls over Messages."""
    deltas = [{"type": "input_json_delta", "partial_json": text} for text in arguments(pieces)]
    blocks: list[Body] = [
        {"type": "tool_use", "id": f"toolu_{call}", "name": "sql_query", "input": {}} for call in range(CALLS)
    ]
    return _messages([(block, deltas) for block in blocks], "tool_use")


def _messages(blocks: Sequence[tuple[Body, Sequence[Body]]], stop: str) -> list[WireEvent]:
    usage = {"input_tokens": 12, "output_tokens": 1}
    message: Body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "usage": usage,
    }
    events: list[Body] = [{"type": "message_start", "message": {**message, "stop_reason": None}}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": stop, "stop_sequence": None}
    events += [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}}, {"type": "message_stop"}]
    return _named(iter(events))


# The SDKs, asked without us.


async def chat_sdk(url: str) -> AsyncGenerator[None]:
    """Ask over Chat Completions, once per step of the generator."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0) as client:
        while True:
            stream = await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "hello"}], stream=True
            )
            async for _ in stream:
                pass
            yield


async def responses_sdk(url: str) -> AsyncGenerator[None]:
    """Ask over Responses, once per step of the generator."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0) as client:
        while True:
            async for _ in await client.responses.create(model=MODEL, input="hello", stream=True):
                pass
            yield


async def messages_sdk(url: str) -> AsyncGenerator[None]:
    """Ask over Messages, once per step of the generator."""
    from anthropic import AsyncAnthropic

    async with AsyncAnthropic(api_key=KEY, base_url=url.removesuffix("/v1"), max_retries=0) as client:
        while True:
            stream = await client.messages.create(
                model=MODEL, max_tokens=1_000, messages=[{"role": "user", "content": "hello"}], stream=True
            )
            async for _ in stream:
                pass
            yield


@dataclass(frozen=True)
class Spoken:
    """A wire: what it is called, how it says a text and calls of so many pieces, our parts and the bare SDK."""

    name: str
    text: Callable[[int], list[WireEvent]]
    calls: Callable[[int], list[WireEvent]]
    parts: WireParts
    sdk: Callable[[str], AsyncGenerator[None]]

    async def ours(self, url: str) -> AsyncGenerator[None]:
        """Ask through `WireModel`, once per step of the generator."""
        model = WireModel(self.parts, Access(MODEL, url, Key(KEY), PROVIDER), ProviderSettings())
        request = ModelRequest("request-001", (UserMessage("u1", "hello"),))
        try:
            while True:
                async for _ in model.stream(request, CancelSignal()):
                    pass
                yield
        finally:
            await model.aclose()


WIRES = (
    Spoken("Chat", chat_text, chat_calls, OPENAI_CHAT, chat_sdk),
    Spoken("Responses", responses_text, responses_calls, OPENAI_RESPONSES, responses_sdk),
    Spoken("Messages", messages_text, messages_calls, ANTHROPIC_MESSAGES, messages_sdk),
)


# Decoding.


def decoding(wire: Spoken, events: Sequence[WireEvent]) -> float:
    """Return the processor seconds of decoding an answer."""
    begun = time.process_time()
    read_response(wire.parts.decoder("request-001"), events)
    return time.process_time() - begun


def parsing(events: Sequence[WireEvent]) -> float:
    """Return the processor seconds of parsing the same bytes."""
    texts = [event.data for event in events if event.data != "[DONE]"]
    begun = time.process_time()
    for text in texts:
        json.loads(text)
    return time.process_time() - begun


def of_decoding(repeats: int, pieces: int) -> list[Figure]:
    """Return the figures of decoding."""
    figures: list[Figure] = []
    for wire in WIRES:
        for what, events, target in (
            ("text", wire.text(pieces), TARGET_TEXT),
            ("calls", wire.calls(pieces // CALLS), TARGET_CALLS),
        ):
            seconds = min(decoding(wire, events) for _ in range(repeats))
            floor = min(parsing(events) for _ in range(repeats))
            size = sum(len(event.data.encode()) for event in events)
            case = f"decode {wire.name}, {what}, {len(events):,} chunks"
            figures += [
                _held(case, seconds / len(events) * 1e6, "µs", floor / len(events) * 1e6, target),
                Figure(f"decode {wire.name}, {what}", size / seconds / 1e6, "MB/s", size / floor / 1e6),
            ]
        figures.append(_growth(wire, repeats, pieces))
    return figures


def _growth(wire: Spoken, repeats: int, pieces: int) -> Figure:
    """Return what a chunk costs in an answer ten times as long; the short one is decoded as often as makes the same number of chunks."""
    short, long = wire.text(pieces // 10), wire.text(pieces)
    few = min(sum(decoding(wire, short) for _ in range(10)) for _ in range(repeats)) / (10 * len(short))
    many = min(decoding(wire, long) for _ in range(repeats)) / len(long)
    growth = many / few
    return Figure(
        f"growth to {len(long):,} chunks, {wire.name}",
        growth,
        "×",
        None,
        None,
        f"≤ {TARGET_GROWTH}",
        growth <= TARGET_GROWTH,
    )


def _held(case: str, value: float, unit: str, floor: float, target: float) -> Figure:
    """Return a figure that is held to a multiple of its floor."""
    ratio = value / floor
    return Figure(case, value, unit, floor, ratio, f"≤ {target:g} × floor", ratio <= target)


# Asking.


@contextlib.asynccontextmanager
async def serving(events: Sequence[WireEvent]) -> AsyncGenerator[str]:
    """Answer every request with the same events, at once; give the address."""
    said = "".join(
        f"event: {event.event}\n" * bool(event.event) + f"data: {event.data}\n\n" for event in events
    ).encode()
    answer = HEAD + f"{len(said):x}\r\n".encode() + said + b"\r\n0\r\n\r\n"

    served: dict[asyncio.StreamWriter, asyncio.Event] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over = served[writer] = asyncio.Event()
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                writer.write(answer)
                await writer.drain()
        writer.close()
        over.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for writer, over in served.items():
            writer.close()
            await over.wait()


async def asking(client: Callable[[str], AsyncGenerator[None]], events: Sequence[WireEvent], times: int) -> float:
    """Return the least processor seconds of one of so many requests; the first one, which makes the connection, does not count."""
    found: list[float] = []
    async with serving(events) as url:
        requests = client(url)
        try:
            for _ in range(times + 1):
                begun = time.process_time()
                await anext(requests)
                found.append(time.process_time() - begun)
        finally:
            await requests.aclose()
    return min(found[1:])


async def of_asking(times: int, pieces: int) -> list[Figure]:
    """Return the figures of requests, and of the chunks of long answers."""
    figures: list[Figure] = []
    for wire in WIRES:
        short, long = wire.text(SHORT_PIECES), wire.text(pieces)
        more = len(long) - len(short)
        bare, ours = await asking(wire.sdk, short, 5 * times), await asking(wire.ours, short, 5 * times)
        bare_long, ours_long = await asking(wire.sdk, long, times), await asking(wire.ours, long, times)
        figures += [
            _held(f"request over {wire.name}, over the bare SDK", ours * 1e6, "µs", bare * 1e6, TARGET_REQUEST),
            _held(
                f"chunk over {wire.name}, over the bare SDK",
                (ours_long - ours) / more * 1e6,
                "µs",
                (bare_long - bare) / more * 1e6,
                TARGET_CHUNK,
            ),
        ]
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="measure a part of it, once")
    is_quick = parser.parse_args().quick
    figures = [
        *of_decoding(1 if is_quick else 7, 1_000 if is_quick else 20_000),
        *asyncio.run(of_asking(1 if is_quick else 20, 200 if is_quick else 2_000)),
    ]
    for figure in figures:
        floor = "" if figure.floor is None else f" floor {figure.floor:,.1f}"
        ratio = "" if figure.ratio is None else f"{figure.ratio:>7.2f} ×"
        verdict = "" if figure.is_met is None else f"{figure.target:>14}  {'met' if figure.is_met else 'MISSED'}"
        print(f"{figure.case:<48}{figure.value:>12,.2f} {figure.unit:<5}{ratio:<9}{floor:<20}{verdict}")
    print(json.dumps([msgspec.to_builtins(figure) for figure in figures]))


if __name__ == "__main__":
    main()
