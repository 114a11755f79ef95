"""A signal to stop: set once, seen by all."""

import asyncio

import pytest

from checkrein.ports.tool import CancelSignal
from checkrein.testing.manual_clock import ManualClock


def test_it_is_set_once_and_keeps_its_first_reason() -> None:
    signal = CancelSignal()
    assert (signal.is_cancelled, signal.reason) == (False, "")
    assert [signal.cancel("first"), signal.cancel("second")] == [True, False]
    assert (signal.is_cancelled, signal.reason) == (True, "first")


def test_who_asks_is_told_by_an_exception() -> None:
    signal = CancelSignal()
    signal.raise_if_cancelled()
    signal.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        signal.raise_if_cancelled()


async def test_who_waits_is_woken_however_many() -> None:
    signal, clock = CancelSignal(), ManualClock()
    waiting = [clock.spawn(signal.wait(), name="waiting") for _ in range(3)]
    await clock.advance(0)
    signal.cancel("enough")
    assert await asyncio.gather(*waiting) == ["enough"] * 3
    assert await signal.wait() == "enough"


def test_subscribers_are_called_once_in_order_and_late_ones_at_once() -> None:
    signal = CancelSignal()
    heard: list[str] = []
    signal.subscribe(lambda reason: heard.append(f"first {reason}"))
    forget = signal.subscribe(lambda reason: heard.append(f"second {reason}"))
    signal.subscribe(lambda reason: heard.append(f"third {reason}"))
    forget()
    forget()
    signal.cancel("enough")
    signal.cancel("again")
    signal.subscribe(lambda reason: heard.append(f"late {reason}"))()
    assert heard == ["first enough", "third enough", "late enough"]


def test_one_callback_subscribed_twice_is_two_subscriptions() -> None:
    signal = CancelSignal()
    heard: list[str] = []
    forget = signal.subscribe(heard.append)
    signal.subscribe(heard.append)
    forget()
    signal.cancel("enough")
    assert heard == ["enough"]
