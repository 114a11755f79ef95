"""The terminal in raw mode: reading keys on the event loop, and giving the terminal back as it was.

The only file that knows termios. Keys arrive one by one and are not echoed; Ctrl-C stays a signal, so it is heard even when something holds the event loop. The invariant: on
every way out (return, exception, SIGTERM, SIGHUP, a second Ctrl-C, being suspended) the terminal gets its former mode back.
"""

import asyncio
import contextlib
import os
import signal
import sys
import termios
from collections.abc import Mapping
from types import FrameType, TracebackType
from typing import Final, Protocol, Self

from checkrein.cli.chat_keys import KeyReader, Press
from checkrein.cli.exits import Exit
from checkrein.ports.clock import Clock, TimerHandle

__all__ = ["RawTerminal", "TerminalUser"]

_READ_BYTES: Final = 65_536
_BEGIN: Final = b"\x1b[?2004h"  # pasted text comes between two marks
_END: Final = b"\x1b[?2004l\x1b[?25h"
_IFLAG, _LFLAG, _CC = 0, 3, 6


class TerminalUser(Protocol):
    """Who is told what happens at a terminal."""

    def press(self, press: Press) -> None:
        """A key was pressed, or text typed or pasted."""
        ...

    def interrupt(self) -> None:
        """Ctrl-C was pressed."""
        ...

    def terminate(self) -> None:
        """The process was told to end, or the terminal is gone."""
        ...

    def hide(self) -> None:
        """The process is about to be suspended."""
        ...

    def redraw(self) -> None:
        """The terminal's size changed, or the process goes on after it was suspended."""
        ...


class RawTerminal:
    """Standard input and output in raw mode, as a context manager.

    Args:
        user: told what happens, on the running event loop.
        clock: waits for the rest of a key's bytes.
        farewell: printed when a second Ctrl-C, or SIGTERM, leaves at once.
    """

    def __init__(self, user: TerminalUser, clock: Clock, *, farewell: str) -> None:
        self._user = user
        self._clock = clock
        self._farewell = farewell
        self._keys = KeyReader()
        self._timer: TimerHandle | None = None
        self._input, self._output = sys.stdin.fileno(), sys.stdout.fileno()
        self._mode = termios.tcgetattr(self._input)
        self._loop = asyncio.get_running_loop()
        self._signals: Mapping[signal.Signals, object] = {}
        self._unheard: set[int] = set()

    def __enter__(self) -> Self:
        """Take the terminal."""
        handlers = {
            signal.SIGINT: self._on_stop,
            signal.SIGTERM: self._on_stop,
            signal.SIGTSTP: self._on_call,
            signal.SIGCONT: self._on_call,
            signal.SIGWINCH: self._on_call,
        }
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            handlers[signal.SIGHUP] = self._on_stop
        self._signals = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        self._take()
        self._loop.add_reader(self._input, self._on_readable)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the terminal back."""
        self._loop.remove_reader(self._input)
        self._forget_timer()
        self.give_back()
        for number, handler in self._signals.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what `signal` returned

    def give_back(self) -> None:
        """Restore the terminal's mode; safe to call again."""
        with contextlib.suppress(OSError, termios.error):
            os.write(self._output, _END)
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(self._input, termios.TCSANOW, self._mode)

    def leave_at_once(self, code: Exit) -> None:
        """Give the terminal back and end the process, whatever still runs."""
        self.give_back()
        with contextlib.suppress(OSError):
            os.write(2, f"\r\x1b[K{self._farewell}\n".encode())
        os._exit(code)

    def _take(self) -> None:
        mode = termios.tcgetattr(self._input)
        mode[_IFLAG] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR | termios.IXON)
        mode[_LFLAG] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
        characters = mode[_CC]
        characters[termios.VMIN], characters[termios.VTIME] = 1, 0
        # Ctrl-\ would end the process without giving the terminal back.
        characters[termios.VQUIT] = bytes((os.fpathconf(self._input, "PC_VDISABLE") & 0xFF,))
        termios.tcsetattr(self._input, termios.TCSANOW, mode)
        os.write(self._output, _BEGIN)

    def _on_readable(self) -> None:
        try:
            data = os.read(self._input, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._input)
            self._user.terminate()
            return
        self._forget_timer()
        self._tell(self._keys.feed(data))
        seconds = self._keys.wait_seconds
        if seconds is not None:
            self._timer = self._clock.call_later(seconds, lambda: self._tell(self._keys.flush()))

    def _tell(self, presses: list[Press]) -> None:
        for press in presses:
            self._user.press(press)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_stop(self, number: int, _frame: FrameType | None) -> None:
        """Hand a signal to the loop; one more before the loop heard the first means that something holds it."""
        if number in self._unheard:
            self.leave_at_once(Exit.INTERRUPTED if number == signal.SIGINT else Exit.TERMINATED)
        self._unheard.add(number)
        self._loop.call_soon_threadsafe(self._stop, number)

    def _stop(self, number: int) -> None:
        self._unheard.discard(number)
        if number == signal.SIGINT:
            self._user.interrupt()
        else:
            self._user.terminate()

    def _on_call(self, number: int, _frame: FrameType | None) -> None:
        self._loop.call_soon_threadsafe(self._suspend if number == signal.SIGTSTP else self._resume)

    def _suspend(self) -> None:
        self._user.hide()
        self.give_back()
        before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        # Here the process stood still until it was told to go on.
        signal.signal(signal.SIGTSTP, before)
        self._resume()

    def _resume(self) -> None:
        with contextlib.suppress(OSError, termios.error):
            self._take()
        self._user.redraw()
