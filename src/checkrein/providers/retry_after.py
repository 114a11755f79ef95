"""How long a provider asks to be left alone, in all the forms in which it says so.

Pure: headers and a time go in, seconds come out. The invariant: the answer is a finite number of seconds, 0 or more, or None where nothing was asked; what cannot be read
asks nothing.

Sources: RFC 9110 §10.2.3 (`Retry-After`), and what the providers document: `retry-after-ms`, OpenAI's `x-ratelimit-reset-requests: 6m0s`, Anthropic's
`anthropic-ratelimit-requests-reset` (RFC 3339), OpenRouter's `x-ratelimit-reset` (milliseconds since 1970), the draft header `ratelimit-reset` (seconds).
"""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

__all__ = ["retry_after"]

_LONGEST_SECONDS: Final = 7 * 86_400.0
"""No provider means more; a larger number is a time of another kind."""
_EPOCH_SECONDS: Final = 1e9
"""A number from here on is a point in time since 1970, not a wait."""
_EPOCH_MILLISECONDS: Final = 1e12
_UNITS: Final[Mapping[str, float]] = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_NUMBER: Final = r"\d{1,15}(?:\.\d{1,9})?"
_DURATION: Final = re.compile(rf"(?:{_NUMBER}(?:ms|[smhd]))+")
_PART: Final = re.compile(rf"({_NUMBER})(ms|[smhd])")
_PLAIN: Final = re.compile(_NUMBER)
_IN_WORDS: Final = re.compile(
    rf"(?:try again|retry) (?:in|after) ({_NUMBER}) ?(ms|milliseconds?|s|seconds?|m|minutes?)\b", re.IGNORECASE
)
_RESET: Final = re.compile(r"(?:x-|anthropic-)?ratelimit-(?:(\w[\w-]*)-)?reset(?:-(\w[\w-]*))?")


def retry_after(headers: Mapping[str, str], *, now: float, message: str = "") -> float | None:
    """Return for how many seconds not to ask again, None when nobody said so.

    Args:
        headers: of the response, in any case.
        now: seconds since 1970 (UTC).
        message: the error's text, which is looked at last.
    """
    known = {name.lower(): value.strip() for name, value in headers.items()}
    milliseconds = _plain(known.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    asked = _wait(known.get("retry-after", ""), now)
    if asked is not None:
        return asked
    return max(_resets(known, now), default=None) if _has_reset(known) else _in_words(message)


def _has_reset(headers: Mapping[str, str]) -> bool:
    return any(_RESET.fullmatch(name) for name in headers)


def _resets(headers: Mapping[str, str], now: float) -> Iterator[float]:
    """Yield the waits of the limits that are used up; a limit that says nothing of what is left counts as used up."""
    for name, value in headers.items():
        match = _RESET.fullmatch(name)
        if match is None:
            continue
        left = _plain(headers.get(name.replace("reset", "remaining"), "0"))
        wait = _wait(value, now)
        if not left and wait is not None:
            yield wait


def _wait(value: str, now: float) -> float | None:
    """Return a wait written as a number, a duration such as `6m0.5s`, an HTTP date or an RFC 3339 time."""
    number = _plain(value)
    if number is not None:
        if number >= _EPOCH_MILLISECONDS:
            return _bounded(number / 1000 - now)
        return _bounded(number - now if number >= _EPOCH_SECONDS else number)
    if _DURATION.fullmatch(value):
        return _bounded(sum(float(amount) * _UNITS[unit] for amount, unit in _PART.findall(value)))
    moment = _moment(value)
    return None if moment is None else _bounded(moment - now)


def _plain(value: str) -> float | None:
    return float(value) if _PLAIN.fullmatch(value) else None


def _moment(value: str) -> float | None:
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = read(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return None


def _in_words(message: str) -> float | None:
    match = _IN_WORDS.search(message)
    if match is None:
        return None
    amount, unit = match.groups()
    short = "ms" if unit.lower().startswith(("ms", "milli")) else unit[0].lower()
    return _bounded(float(amount) * _UNITS[short])


def _bounded(seconds: float) -> float | None:
    return max(0.0, seconds) if math.isfinite(seconds) and seconds <= _LONGEST_SECONDS else None
