"""The lower end of the terminal: finished lines scroll away above, below stand the unfinished line, what waits, and the line that is typed.

rich draws it; here is only what goes where. The invariant: the picture is never higher than the terminal, its last row is the line that is typed, and the cursor stands in it.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from rich.console import Console, Group
from rich.control import Control
from rich.live import Live
from rich.text import Text

from checkrein.ports.clock import Clock, TimerHandle

__all__ = ["Footer", "Picture"]

_FRAME_SECONDS: Final = 1 / 30


class Footer(msgspec.Struct, frozen=True):
    """What stands below.

    Attributes:
        rows: one row each; cut where the terminal ends.
        line: the last row.
        column: the cursor's place in it.
    """

    rows: Sequence[Text]
    line: Text
    column: int


class Picture:
    """A terminal with a footer.

    Args:
        console: the terminal.
        clock: bounds how often it is drawn.
        footer: asked for each drawing, with the terminal's width.
        failed: told what went wrong while drawing later.
    """

    def __init__(
        self, console: Console, clock: Clock, footer: Callable[[int], Footer], failed: Callable[[Exception], None]
    ) -> None:
        self._console = console
        self._clock = clock
        self._footer = footer
        self._failed = failed
        self._column = 0
        self._live: Live | None = None
        self._timer: TimerHandle | None = None

    def show(self) -> None:
        """Draw the footer, also again after `hide`."""
        if self._live is None:
            self._live = Live(
                get_renderable=self._render,
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self.draw()

    def hide(self) -> None:
        """Remove the footer and leave the cursor below the last finished line."""
        self._forget_timer()
        if self._live is not None:
            live, self._live = self._live, None
            with contextlib.suppress(OSError):  # a terminal that is gone needs no tidying
                live.stop()

    def line(self, text: Text) -> None:
        """Print a finished line above the footer."""
        with self._console:
            self._console.print(text)
            self._place_cursor()

    def draw_soon(self) -> None:
        """Draw the footer anew, not more often than a person can see."""
        if self._timer is None and self._live is not None:
            self._timer = self._clock.call_later(_FRAME_SECONDS, self._draw_later)

    def _draw_later(self) -> None:
        try:
            self.draw()
        except Exception as error:  # noqa: BLE001  a timer has nobody above it
            self._failed(error)

    def draw(self) -> None:
        """Draw the footer anew, now."""
        self._forget_timer()
        if self._live is not None:
            with self._console:
                self._live.refresh()
                self._place_cursor()

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _render(self) -> Group:
        footer = self._footer(self._console.width)
        self._column = footer.column
        most = max(0, self._console.height - 2)
        rows = [*footer.rows[-most:], footer.line] if most else [footer.line]
        for row in rows:
            row.no_wrap, row.overflow = True, "ellipsis"
        return Group(*rows)

    def _place_cursor(self) -> None:
        if self._live is not None:
            self._console.control(Control.move_to_column(self._column), Control.show_cursor(show=True))
