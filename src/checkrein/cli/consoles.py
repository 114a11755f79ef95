"""A console whose reader may go away (`| head`): that is no error, and nothing is printed about it."""

import io
import os

from rich.console import Console

__all__ = ["QuietConsole", "send_nowhere"]


class QuietConsole(Console):
    """A console that says with `BrokenPipeError` that nobody reads it any more, after which it may be used without harm."""

    def on_broken_pipe(self) -> None:
        """Send what follows nowhere.

        Raises:
            BrokenPipeError: always.
        """
        send_nowhere(self)
        raise BrokenPipeError


def send_nowhere(console: Console) -> None:
    """Send further output of a console nowhere, so that neither printing nor the end of the process fails."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, console.file.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        console.file = io.StringIO()
