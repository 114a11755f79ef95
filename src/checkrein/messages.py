"""Message values: what a model reads and writes.

Messages are immutable all the way down and compare by value. `role` and `type` are class constants equal to the tag on the wire. Nothing here
knows a provider, a store or a loop; the module imports `values` and `errors` alone.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, cast

import msgspec
from msgspec.structs import force_setattr

from checkrein.values import JsonObject

__all__ = [
    "AssistantMessage",
    "ContentBlock",
    "Message",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolResult",
    "Usage",
    "UserMessage",
]


class Text(msgspec.Struct, frozen=True, tag="text"):
    """A piece of text in a message."""

    type: ClassVar[Literal["text"]] = "text"
    text: str


class Thinking(msgspec.Struct, frozen=True, tag="thinking", omit_defaults=True):
    """A model's reasoning, kept unchanged with the provider's signature so that it can be sent back."""

    type: ClassVar[Literal["thinking"]] = "thinking"
    text: str
    signature: str = ""


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call", omit_defaults=True):
    """A model's request to call one tool.

    Attributes:
        id: the model's own id of the call; it pairs messages and nothing else.
        name: the tool's name.
        arguments: the arguments; a plain mapping given here becomes a `JsonObject`.
        malformed: the text of arguments that are no JSON object (`arguments` is then empty); `""` otherwise.

    Raises:
        InvalidJson: on creation, when `arguments` has no canonical JSON form.
    """

    type: ClassVar[Literal["tool_call"]] = "tool_call"
    id: str
    name: str
    arguments: JsonObject
    malformed: str = ""

    if TYPE_CHECKING:
        # What a caller may give is wider than what is kept; a Struct makes its own `__init__` at run time.
        def __init__(self, id: str, name: str, arguments: Mapping[str, object], malformed: str = "") -> None: ...  # noqa: A002

    def __post_init__(self) -> None:
        """Turn plain arguments into a `JsonObject`."""
        if type(self.arguments) is not JsonObject:
            force_setattr(self, "arguments", JsonObject(self.arguments))


ContentBlock: TypeAlias = Text | Thinking | ToolCall


class UserMessage(msgspec.Struct, frozen=True, tag="user", tag_field="role"):
    """What a person (or the program that embeds us) says to the model."""

    role: ClassVar[Literal["user"]] = "user"
    id: str
    content: str | tuple[ContentBlock, ...]


class AssistantMessage(msgspec.Struct, frozen=True, tag="assistant", tag_field="role"):
    """One model response as it stands in the transcript."""

    role: ClassVar[Literal["assistant"]] = "assistant"
    id: str
    content: tuple[ContentBlock, ...]


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result", tag_field="role", omit_defaults=True):
    """The one answer to one tool call."""

    role: ClassVar[Literal["tool_result"]] = "tool_result"
    id: str
    tool_call_id: str
    tool_name: str
    content: str | tuple[ContentBlock, ...]
    is_error: bool = False


Message: TypeAlias = UserMessage | AssistantMessage | ToolResult


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one or more model responses consumed.

    Attributes:
        input_tokens: tokens read, cached ones included.
        output_tokens: tokens written, reasoning included.
        cached_tokens: the part of `input_tokens` that came from the provider's cache.
        cost: in USD; None when the price is unknown.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = None

    def __post_init__(self) -> None:
        """Make a float of a whole sum, so that equal usage has equal bytes."""
        if self.cost is not None:
            force_setattr(self, "cost", float(self.cost))

    @property
    def total_tokens(self) -> int:
        """Tokens read plus tokens written: what a `tokens` budget counts."""
        return self.input_tokens + self.output_tokens


IssueCode: TypeAlias = Literal[
    "duplicate_call_id",
    "duplicate_result",
    "orphan_result",
    "result_before_call",
    "missing_result",
    "tool_name_mismatch",
    "empty_tool_name",
    "invalid_arguments",
    "invalid_message",
]


class TranscriptIssue(msgspec.Struct, frozen=True):
    """One fault of a transcript.

    Attributes:
        code: what is wrong.
        index: position of the message that shows it.
        detail: the call id, or what is wrong with the message.
    """

    code: IssueCode
    index: int
    detail: str


def validate_transcript(messages: Iterable[object]) -> tuple[TranscriptIssue, ...]:
    """Return what is wrong with a transcript, in order of the messages; empty for a valid one. Never raises.

    Results belong to the nearest assistant message before them, with no other message between. Each call has exactly one. A call id that comes again in a later turn is
    allowed. One fault gives one issue: a result that stands in the wrong place is reported, and the call that it answers is not reported as well.
    """
    known = tuple(messages)
    return _TranscriptCheck(known).run()


class _TranscriptCheck:
    """One pass over a transcript; `_open` holds the calls of the present turn that have no result yet."""

    def __init__(self, messages: tuple[object, ...]) -> None:
        self._messages = messages
        self._issues: list[TranscriptIssue] = []
        self._turn = -1
        self._open: list[ToolCall] = []
        self._answered: set[str] = set()
        self._late: dict[str, int] = {}
        self._early: dict[str, int] = {}

    def run(self) -> tuple[TranscriptIssue, ...]:
        """Check every message."""
        for index, message in enumerate(self._messages):
            problem = _malformation(message)
            if problem:
                self._report("invalid_message", index, problem)
            if isinstance(message, ToolResult):
                self._result(index, message)
                continue
            self._close_turn()
            if isinstance(message, AssistantMessage) and not problem:
                self._calls(index, message)
        self._close_turn()
        self._issues.sort(key=lambda issue: issue.index)
        return tuple(self._issues)

    def _report(self, code: IssueCode, index: int, detail: str) -> None:
        self._issues.append(TranscriptIssue(code, index, detail))

    def _calls(self, index: int, message: AssistantMessage) -> None:
        self._turn = index
        seen: set[str] = set()
        for call in (block for block in message.content if isinstance(block, ToolCall)):
            if call.id in seen:
                self._report("duplicate_call_id", index, call.id)
                continue
            seen.add(call.id)
            if not call.name:
                self._report("empty_tool_name", index, call.id)
            if not _is_object(call.arguments):
                self._report("invalid_arguments", index, call.id)
            if self._early.pop(call.id, None) is None:
                self._open.append(call)

    def _result(self, index: int, message: ToolResult) -> None:
        call = next((item for item in self._open if item.id == message.tool_call_id), None)
        if call is not None:
            self._open.remove(call)
            self._answered.add(call.id)
            self._compare_names(index, call, message)
        elif message.tool_call_id in self._answered:
            self._report("duplicate_result", index, message.tool_call_id)
        elif self._late.pop(message.tool_call_id, None) is None:
            self._misplaced(index, message.tool_call_id)

    def _compare_names(self, index: int, call: ToolCall, message: ToolResult) -> None:
        if not message.tool_name and call.name:
            self._report("empty_tool_name", index, call.id)
        elif message.tool_name != call.name:
            self._report("tool_name_mismatch", index, call.id)

    def _misplaced(self, index: int, call_id: str) -> None:
        later = any(
            isinstance(block, ToolCall) and block.id == call_id
            for message in self._messages[index + 1 :]
            if isinstance(message, AssistantMessage) and not _malformation(message)
            for block in message.content
        )
        self._report("result_before_call" if later else "orphan_result", index, call_id)
        if later:
            self._early[call_id] = index

    def _close_turn(self) -> None:
        """Report the calls without a result; a result that comes too late is part of the same fault."""
        for call in self._open:
            self._report("missing_result", self._turn, call.id)
            self._late[call.id] = self._turn
        self._open = []
        self._answered = set()


def _malformation(message: object) -> str:
    """Return what is wrong with a message's own shape, `""` for nothing."""
    if isinstance(message, AssistantMessage):
        return _shape(message.id, message.content, blocks=(Text, Thinking, ToolCall), text=False)
    if isinstance(message, (UserMessage, ToolResult)):
        return _shape(message.id, message.content, blocks=(Text,), text=True)
    return f"{type(message).__name__} is no message"


def _shape(identity: object, content: object, *, blocks: tuple[type, ...], text: bool) -> str:
    if not isinstance(identity, str):
        return "its id is no text"
    if isinstance(content, str):
        return "" if text else "an assistant message holds blocks"
    if not isinstance(content, tuple):
        return "its content is neither text nor a tuple of blocks"
    strangers = (item for item in cast("tuple[object, ...]", content) if not isinstance(item, blocks))
    return next((f"a {type(item).__name__} does not belong there" for item in strangers), "")


def _is_object(arguments: object) -> bool:
    return isinstance(arguments, JsonObject)
