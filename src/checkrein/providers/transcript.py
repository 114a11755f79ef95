"""What every wire needs to write a transcript down: ids and names that a provider takes, contents without empty parts.

Pure and deterministic, and what was written stays as it was when the transcript grows, so that a provider's cache of its beginning holds. The invariant: within one request
every call id is unique and of the form that all providers take, and a result has the id of its call.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from checkrein.errors import ModelError
from checkrein.messages import ContentBlock, Image, Message, Text, ToolResult, UserMessage
from checkrein.ports.model import ModelRequest, ToolSchema
from checkrein.values import canonical_json

__all__ = ["EMPTY", "CallIds", "cache_key", "check_tools", "last_user_index", "parts_of", "result_text", "wire_name"]

EMPTY: Final = "(empty)"
"""Stands where a provider wants text and there is none."""
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_NAME_CHARACTERS: Final = 64


class CallIds:
    """The ids of calls as they are sent: our own where a provider takes them, others in their place.

    A transcript may use an id again in a later turn; no provider takes that.
    """

    def __init__(self) -> None:
        self._turn: dict[str, str] = {}
        self._used: set[str] = set()
        self._turns = 0

    def begin_turn(self) -> None:
        """Begin the calls of the next response."""
        self._turn = {}
        self._turns += 1

    def of(self, call_id: str) -> str:
        """Return what is sent for the id of a call of this turn, or of its result."""
        if call_id not in self._turn:
            sent = call_id
            if not _ID.fullmatch(call_id) or call_id in self._used:
                sent = f"call_{hashlib.sha256(f'{self._turns}/{call_id}'.encode()).hexdigest()[:24]}"
            self._turn[call_id] = sent
            self._used.add(sent)
        return self._turn[call_id]


def cache_key(request: ModelRequest, system: str) -> str:
    """Return the same key for all requests of one conversation, and of those that begin like it."""
    first = next((message for message in request.messages if isinstance(message, UserMessage)), None)
    begun = [system, [tool.name for tool in request.tools], None if first is None else repr(first.content)]
    return hashlib.sha256(canonical_json(begun)).hexdigest()[:32]


def wire_name(name: str) -> str:
    """Return a tool's name as a past call is sent with it: a name that a model made up may have characters that providers refuse."""
    return _NO_NAME.sub("_", name)[:_NAME_CHARACTERS] or "_"


def check_tools(tools: Sequence[ToolSchema]) -> None:
    """Refuse tools whose name no provider takes.

    Raises:
        ModelError: `MODEL_REQUEST`, naming the tool.
    """
    strange = next((tool.name for tool in tools if not _NAME.fullmatch(tool.name)), None)
    if strange is not None:
        text = f"tool {strange!r:.80} cannot be offered to a model: a name has 1 to 64 letters, digits, _ and -"
        raise ModelError(text, code="MODEL_REQUEST")


def parts_of(content: str | Sequence[ContentBlock]) -> tuple[Text | Image, ...]:
    """Return the parts of a user's message or a result, none empty, at least one."""
    blocks: Sequence[ContentBlock] = (Text(content),) if isinstance(content, str) else content
    parts = tuple(
        block for block in blocks if isinstance(block, Image) or (isinstance(block, Text) and block.text.strip())
    )
    return parts or (Text(EMPTY),)


def result_text(result: ToolResult) -> str:
    """Return the text of a result for a wire that has no word for errors: an error says that it is one."""
    text = "\n\n".join(part.text for part in parts_of(result.content) if isinstance(part, Text)) or EMPTY
    return f"error: {text}" if result.is_error and not text.lower().startswith("error") else text


def last_user_index(messages: Sequence[Message]) -> int:
    """Return the position of the last user message, -1 when there is none: what follows is the present round of tools."""
    return max((index for index, message in enumerate(messages) if isinstance(message, UserMessage)), default=-1)
