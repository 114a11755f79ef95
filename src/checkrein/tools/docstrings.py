"""What a Google-style docstring says of a function and of its arguments.

Only the two things a tool needs are read: the text before the first section, and the entries of `Args:`. A docstring of another style is a
description without argument texts, never an error.
"""

import re

from checkrein.values import clean_text

__all__ = ["documented_arguments", "summary"]

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|Attributes|Warnings?|See Also):\s*$"
)
_ARGUMENT = re.compile(r"\*{0,2}(?P<name>\w+)(?:\s*\([^)]*\))?:\s*(?P<text>.*)")


def summary(docstring: str) -> str:
    """Return what a docstring says before its first section (`Args:`, `Returns:` …)."""
    kept: list[str] = []
    for line in docstring.splitlines():
        if _SECTION.match(line):
            break
        kept.append(line)
    return clean_text("\n".join(kept).strip())


def documented_arguments(docstring: str) -> dict[str, str]:
    """Return the descriptions of the `Args:` section of a Google-style docstring, by parameter."""
    found: dict[str, str] = {}
    inside, indent, current = False, 0, ""
    for line in docstring.splitlines():
        if _SECTION.match(line):
            inside, current = line.startswith(("Args", "Arguments", "Parameters")), ""
        elif inside and line.strip():
            depth = len(line) - len(line.lstrip())
            indent = indent or depth
            match = _ARGUMENT.match(line.strip()) if depth == indent else None
            if match:
                current = match["name"]
                found[current] = match["text"]
            elif current:
                found[current] = f"{found[current]} {line.strip()}"
    return {name: clean_text(text.strip()) for name, text in found.items() if text.strip()}
