import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import TypeVar

import pytest

from checkrein.clock import spawn
from checkrein.streams import EventStream, StreamLog

Log = StreamLog[int, str]
T = TypeVar("T")


async def collected(events: AsyncIterator[int]) -> list[int]:
    return [event async for event in events]


def started(work: Coroutine[object, object, T]) -> "asyncio.Task[T]":
    return spawn(work, name="reader")


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_iterating_reads_from_the_start_to_the_end() -> None:
    log = Log()
    log.append(1)
    reader = started(collected(aiter(log.stream)))
    await turns()
    log.append(2)
    log.append(3)
    await turns()
    assert not reader.done()
    log.finish("end")
    assert await reader == [1, 2, 3]
    assert await collected(aiter(log.stream)) == [1, 2, 3]


async def test_subscribing_follows_from_an_offset_to_the_end() -> None:
    log = Log()
    log.append(1)
    readers = [started(collected(log.stream.subscribe(offset))) for offset in (0, 1, 3)]
    for event in (2, 3, 4):
        await turns()
        log.append(event)
    log.finish("end")
    assert await asyncio.gather(*readers) == [[1, 2, 3, 4], [2, 3, 4], [4]]


async def test_every_reader_sees_every_event_in_order_whatever_the_others_do() -> None:
    log = Log()

    async def quits_early() -> None:
        async for _ in log.stream:
            return

    async def is_slow() -> list[int]:
        seen: list[int] = []
        async for event in log.stream:
            await turns(3)
            seen.append(event)
        return seen

    quitter, slow = started(quits_early()), started(is_slow())
    cancelled, fast = (started(collected(aiter(log.stream))) for _ in range(2))
    await turns()
    cancelled.cancel()
    for event in range(20):
        log.append(event)
        await turns(1)
    log.finish("end")
    assert await fast == await slow == list(range(20))
    await quitter
    assert cancelled.cancelled()


async def test_reading_gives_a_tuple_of_what_is_there() -> None:
    log = Log()
    assert log.stream.read() == ()
    log.append(1)
    log.append(2)
    assert (log.stream.read(), log.stream.read(1), log.stream.read(7)) == ((1, 2), (2,), ())


async def test_a_negative_offset_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="offsets count from 0"):
        Log().stream.read(-1)
    with pytest.raises(ValueError, match="offsets count from 0"):
        Log().stream.subscribe(-1)


async def test_it_is_a_read_only_sequence_of_what_happened_so_far() -> None:
    log = Log()
    stream = log.stream
    log.append(1)
    log.append(2)
    seen: list[int] = []
    for event in stream:
        seen.append(event)
        log.append(event + 10)
    assert seen == [1, 2]
    assert (len(stream), stream[0], stream[-1], stream[1:3], 12 in stream) == (4, 1, 12, (2, 11), True)
    with pytest.raises(IndexError):
        _ = stream[4]
    with pytest.raises(TypeError):
        stream[0] = 5  # type: ignore[index]  refused at run time as well


async def test_awaiting_gives_the_result_as_often_as_wanted_and_apart_from_iterating() -> None:
    log = Log()
    stream = log.stream
    waiters = [started(_result(stream)) for _ in range(3)]
    await turns()
    assert not stream.is_done
    log.finish("end")
    assert await asyncio.gather(*waiters) == ["end"] * 3
    assert (await stream, await stream, stream.is_done) == ("end", "end", True)


async def _result(stream: EventStream[int, str]) -> str:
    return await stream


async def test_cancelling_a_waiter_cancels_nobody_else() -> None:
    log = Log()
    one, other = (started(_result(log.stream)) for _ in range(2))
    await turns()
    one.cancel()
    await turns()
    log.finish("end")
    assert await other == "end"
    assert one.cancelled()


async def test_nothing_follows_the_result() -> None:
    log = Log()
    log.finish("end")
    with pytest.raises(RuntimeError, match="after the result"):
        log.append(1)
    with pytest.raises(RuntimeError, match="second result"):
        log.finish("again")
    assert await log.stream == "end"


def test_waiters_of_a_closed_loop_are_not_woken() -> None:
    log, loop = Log(), asyncio.new_event_loop()
    lost = loop.create_task(_result(log.stream))
    loop.run_until_complete(turns())
    loop.close()
    log.finish("end")
    assert asyncio.run(_result(log.stream)) == "end"
    assert not lost.done()
    loop.set_exception_handler(lambda _loop, _context: None)


async def test_the_audience_is_told_of_each_event_while_there_is_one() -> None:
    audience: list[str] = []
    told: list[int] = []
    log = StreamLog[int, str](audience, told.append)
    log.append(1)
    audience.append("somebody")
    log.append(2)
    log.tell(3)
    audience.clear()
    log.append(4)
    assert (told, log.stream.read()) == ([2, 3], (1, 2, 4))
    audience.append("late")
    log.finish("end")
    log.tell(5)
    assert told == [2, 3]
