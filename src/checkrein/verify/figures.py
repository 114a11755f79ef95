"""Reads figures: exact decimals from machine-made cells, and figures as people write them, with currency signs and thousands separators.

Pure text in, `Decimal` out; no file and no artifact is known here. The invariant: arithmetic is exact (`exact` traps a rounded result), and no text, however
long or odd, makes a figure of more than 100 digits on either side of the point, so sums stay small.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager
from decimal import Context, Decimal, Inexact, localcontext
from typing import Final

import msgspec

__all__ = ["Figure", "difference", "exact", "find_figure", "parse_decimal", "parse_figure", "shown"]

_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]{1,100}(?:\.[0-9]{0,100})?|\.[0-9]{1,100})(?:[eE][+-]?[0-9]{1,2})?")

_SIGNS: Final = "$€£¥₹₩₽₺₴₦₫₪฿¢₿"
_CODES: Final = "USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|KRW|SGD|HKD"
_NARROW: Final = "\u00a0\u2009\u202f"
_FIGURE: Final = r"""
    (?<![^\W_]) (?<![^\W_]_) (?<![0-9][.,]) (?<![-+−])      # not inside a word, a longer number or a row of dashes
    (?P<sign>[-+−])?
    (?:(?:[A-Z]{{0,3}}[{signs}]|{codes})[ {narrow}]?)?
    (?P<inner>[-+−])?
    (?P<digits>
        [0-9]{{1,3}}(?:(?P<separator>[,.'’{spaces}{narrow}])[0-9]{{3}})(?:(?P=separator)[0-9]{{3}}){{0,30}}(?:(?!(?P=separator))[.,][0-9]{{1,60}})?(?!{more})
      | [0-9]{{1,60}}(?:[.,][0-9]{{1,60}})?(?!{more})
      | \.[0-9]{{1,60}}(?!{more})
    )
    (?:[ {narrow}]?(?:[{signs}%]|(?:{codes})\b))?
    (?![^\W_])
"""
# A currency code may touch the figure (`2328.60USD`), any other letter or digit makes it a word or a longer number.
_MORE: Final = rf"(?!(?:{_CODES})\b)[^\W_]|[.,][0-9]"
_IN_TEXT: Final = re.compile(
    _FIGURE.format(signs=_SIGNS, codes=_CODES, narrow=_NARROW, spaces="", more=_MORE), re.VERBOSE
)
# Alone in its cell, `2 328.60` can only be one figure; in running text it may be two.
_IN_CELL: Final = re.compile(
    _FIGURE.format(signs=_SIGNS, codes=_CODES, narrow=_NARROW, spaces=r"\ ", more=_MORE), re.VERBOSE
)
_ONE_GROUP: Final = 2


class Figure(msgspec.Struct, frozen=True):
    """A figure found in running text.

    Attributes:
        value: what it says.
        text: how it is written.
        line: the line it stands on, from 1.
    """

    value: Decimal
    text: str
    line: int


@contextmanager
def exact() -> Generator[None]:
    """Compute exactly: 1000 digits, more than sums and products of the figures read here can need.

    Raises:
        decimal.Inexact: a result was rounded nevertheless.
    """
    with localcontext(Context(prec=1000, traps=[Inexact])):
        yield


def difference(one: Decimal, other: Decimal) -> Decimal:
    """Return how far two figures are apart, exactly."""
    with exact():
        return abs(one - other)


def shown(value: Decimal) -> str:
    """Return a figure for people: plain digits as far as they are readable, else twelve significant ones."""
    plain = format(value, "f")
    return plain if len(plain) <= 40 else format(value, ".12g")  # noqa: PLR2004  wider than any column


def parse_decimal(text: str) -> Decimal | None:
    """Return the figure of a machine-made cell (`-12.50`, `1e3`), or None: no separators, no signs of currency, no NaN."""
    stripped = text.strip()
    return Decimal(stripped) if _DECIMAL.fullmatch(stripped) else None


def parse_figure(text: str) -> Decimal | None:
    """Return the figure that a table cell consists of (`$2,328.60`, `2 328,60 €`, `12 %`), or None."""
    found = _IN_CELL.fullmatch(text.strip())
    return _value(found) if found else None


def find_figure(text: str, start: int) -> Figure | None:
    """Return the first figure at or after the character `start` of running text, or None.

    A figure stands for itself: digits inside a word (`Q1`, `2nd`, `v1.2.3`) are none. `,` and `.` are told apart by what stands around them: the last of two
    different ones is the decimal point, `2,328` has thousands, `1.234` and `2328,60` have decimals.
    """
    found = _IN_TEXT.search(text, start)
    if found is None:
        return None
    return Figure(value=_value(found), text=found.group().strip(), line=text.count("\n", 0, found.start("digits")) + 1)


def _value(found: re.Match[str]) -> Decimal:
    sign = "-" if (found["sign"] or found["inner"] or "") in {"-", "−"} else ""
    return Decimal(sign + _plain_digits(found["digits"], found["separator"] or ""))


def _plain_digits(digits: str, separator: str) -> str:
    """Return digits with `.` for the decimal point and without thousands separators."""
    if not separator:
        return digits.replace(",", ".")
    groups = digits.split(separator)
    is_one_group = len(groups) == _ONE_GROUP and groups[1].isdecimal()
    if is_one_group and (separator == "." or (separator == "," and groups[0].startswith("0"))):
        return digits.replace(",", ".")
    return "".join(groups).replace(",", ".")
