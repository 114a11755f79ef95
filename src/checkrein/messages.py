"""Message values: what a model reads and writes.

Messages are immutable all the way down and compare by value. `role` and `type` are class constants equal to the tag on the wire. What comes from outside is checked and
cleaned once, at the door: `Transcript.checked` for transcripts, `clean_message` for single messages. Nothing here knows a provider, a store or a loop; the module imports
`values` and `errors` alone.
"""

import binascii
from collections.abc import Iterable, Mapping
from operator import is_
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Self, TypeAlias, cast

import msgspec
from msgspec.structs import force_setattr

from checkrein.errors import InvalidJson
from checkrein.values import JsonObject, Shared, clean_text, parse_json

__all__ = [
    "IMAGE_TYPES",
    "MAX_IMAGE_CHARACTERS",
    "AssistantMessage",
    "ContentBlock",
    "Image",
    "Message",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolResult",
    "Transcript",
    "TranscriptIssue",
    "Usage",
    "UserMessage",
    "clean_block",
    "clean_call",
    "clean_image",
    "clean_message",
    "malformation",
    "validate_transcript",
]


class Text(msgspec.Struct, frozen=True, gc=False, tag="text"):
    """A piece of text in a message."""

    type: ClassVar[Literal["text"]] = "text"
    text: str


class Thinking(msgspec.Struct, frozen=True, gc=False, tag="thinking", omit_defaults=True):
    """A model's reasoning, kept unchanged with the provider's signature so that it can be sent back."""

    type: ClassVar[Literal["thinking"]] = "thinking"
    text: str
    signature: str = ""


class ToolCall(msgspec.Struct, frozen=True, gc=False, tag="tool_call", omit_defaults=True):
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

    @classmethod
    def parsed(cls, call_id: str, name: str, text: str) -> "ToolCall":
        """Return a call whose arguments came as JSON text.

        Text that is no JSON object is kept in `malformed`; no text at all means no arguments.
        """
        if not text.strip():
            return cls(call_id, name, JsonObject())
        try:
            value = parse_json(text)
        except InvalidJson:
            value = None
        if isinstance(value, dict):
            return cls(call_id, name, value)
        return cls(call_id, name, JsonObject(), malformed=clean_text(text))


IMAGE_TYPES: Final = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
"""The kinds of pictures that every provider with eyes takes."""
MAX_IMAGE_CHARACTERS: Final = 8 * 1024 * 1024
"""The largest picture, in characters of base64."""


class Image(msgspec.Struct, frozen=True, gc=False, tag="image"):
    """A picture in a user's message or a tool's result.

    Attributes:
        media_type: one of `IMAGE_TYPES`.
        data: its bytes as base64 (RFC 4648 §4, with padding), at most `MAX_IMAGE_CHARACTERS`.
    """

    type: ClassVar[Literal["image"]] = "image"
    media_type: str
    data: str

    @classmethod
    def of(cls, content: bytes, media_type: str) -> "Image":
        """Return the picture with these bytes."""
        return cls(media_type, binascii.b2a_base64(content, newline=False).decode())


ContentBlock: TypeAlias = Text | Thinking | ToolCall | Image


class UserMessage(msgspec.Struct, frozen=True, gc=False, tag="user", tag_field="role"):
    """What a person (or the program that embeds us) says to the model."""

    role: ClassVar[Literal["user"]] = "user"
    id: str
    content: str | tuple[ContentBlock, ...]


class AssistantMessage(msgspec.Struct, frozen=True, gc=False, tag="assistant", tag_field="role"):
    """One model response as it stands in the transcript."""

    role: ClassVar[Literal["assistant"]] = "assistant"
    id: str
    content: tuple[ContentBlock, ...]


class ToolResult(msgspec.Struct, frozen=True, gc=False, tag="tool_result", tag_field="role", omit_defaults=True):
    """The one answer to one tool call."""

    role: ClassVar[Literal["tool_result"]] = "tool_result"
    id: str
    tool_call_id: str
    tool_name: str
    content: str | tuple[ContentBlock, ...]
    is_error: bool = False


_RESULT_FIELDS = ToolResult.__struct_fields__
Message: TypeAlias = UserMessage | AssistantMessage | ToolResult


class Usage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one or more model responses consumed.

    Attributes:
        input_tokens: tokens read, cached ones included.
        output_tokens: tokens written, reasoning included.
        cached_tokens: the part of `input_tokens` that came from the provider's cache.
        cost: in USD; None when the price is unknown.
        cache_written_tokens: the part of `input_tokens` that was written into the cache.
        reasoning_tokens: the part of `output_tokens` that was reasoning.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = None
    cache_written_tokens: int = 0
    reasoning_tokens: int = 0

    def __post_init__(self) -> None:
        """Make a float of a whole sum, so that equal usage has equal bytes."""
        if self.cost is not None:
            force_setattr(self, "cost", float(self.cost))

    @property
    def total_tokens(self) -> int:
        """Tokens read plus tokens written: what a `tokens` budget counts."""
        return self.input_tokens + self.output_tokens

    def plus(self, other: "Usage", *, cost: float | None) -> "Usage":
        """Return the tokens of both together, at that cost: what a sum of costs is when one is unknown is the caller's to say."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            cost,
            self.cache_written_tokens + other.cache_written_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


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
    allowed. One fault gives one issue: a result in the wrong place is reported, and the call that it answers is not reported as well; what stands where an invalid message
    cannot be read is not judged.
    """
    known: list[object] = []
    try:
        known.extend(messages)
    except Exception as error:  # noqa: BLE001  whatever an iterable raises, it is no transcript
        return (
            *_TranscriptCheck(known).run(),
            TranscriptIssue("invalid_message", len(known), f"the messages cannot be read: {type(error).__name__}"),
        )
    return _TranscriptCheck(known).run()


class _TranscriptCheck:
    """One pass over a transcript.

    `_names` and `_left` are the present turn: the tool of each call, and how many results it may still get. `_late` are calls whose missing result was reported: a result
    that comes too late is part of that fault. `_early` are results that came before their call.
    """

    def __init__(self, messages: list[object]) -> None:
        self._messages = messages
        self._issues: list[TranscriptIssue] = []
        self._turn = -1
        self._names: dict[str, str] = {}
        self._left: dict[str, int] = {}
        self._answered: set[str] = set()
        self._late: set[str] = set()
        self._early: set[str] = set()
        self._strangers = 0
        self._is_judging = True
        self._last_call: dict[str, int] | None = None

    def run(self) -> tuple[TranscriptIssue, ...]:
        """Check every message."""
        for index, message in enumerate(self._messages):
            problem = malformation(message)
            if problem:
                self._report("invalid_message", index, problem)
            if isinstance(message, ToolResult):
                self._result(index, message)
            elif isinstance(message, (UserMessage, AssistantMessage)):
                self._close_turn()
                self._is_judging = not (problem and isinstance(message, AssistantMessage))
                if isinstance(message, AssistantMessage) and not problem:
                    self._calls(index, message)
            else:
                self._stranger()
        self._close_turn()
        self._issues.sort(key=_index_of)
        return tuple(self._issues)

    def _report(self, code: IssueCode, index: int, detail: str) -> None:
        self._issues.append(TranscriptIssue(code, index, detail))

    def _stranger(self) -> None:
        """Something that is no message may stand for one missing result, or for a response whose results follow."""
        if any(self._left.values()):
            self._strangers += 1
        else:
            self._close_turn()
            self._is_judging = False

    def _calls(self, index: int, message: AssistantMessage) -> None:
        self._turn = index
        for call in message.content:
            if not isinstance(call, ToolCall):
                continue
            if call.id in self._names:
                self._report("duplicate_call_id", index, call.id)
            elif not call.name:
                self._report("empty_tool_name", index, call.id)
            elif not _is_object(call):
                self._report("invalid_arguments", index, call.id)
            self._names.setdefault(call.id, call.name)
            self._left[call.id] = self._left.get(call.id, 0) + 1

    def _result(self, index: int, message: ToolResult) -> None:
        call_id = message.tool_call_id
        if not self._is_judging or not isinstance(cast("object", call_id), str):
            return
        if self._left.get(call_id, 0) > 0:
            self._left[call_id] -= 1
            self._compare_names(index, self._names[call_id], message)
        elif call_id in self._names:
            if call_id not in self._early:
                self._report("duplicate_result", index, call_id)
        elif call_id in self._late:
            self._late.discard(call_id)
        else:
            self._misplaced(index, call_id)

    def _compare_names(self, index: int, name: str, message: ToolResult) -> None:
        if not message.tool_name and name:
            self._report("empty_tool_name", index, message.tool_call_id)
        elif message.tool_name != name and name:
            self._report("tool_name_mismatch", index, message.tool_call_id)

    def _misplaced(self, index: int, call_id: str) -> None:
        if self._last_call is None:
            self._last_call = _last_calls(self._messages)
        if self._last_call.get(call_id, -1) > index:
            self._report("result_before_call", index, call_id)
            self._early.add(call_id)
        else:
            self._report("duplicate_result" if call_id in self._answered else "orphan_result", index, call_id)

    def _close_turn(self) -> None:
        """Report the calls without a result, except those that a fault already reported stands for."""
        for call_id, left in self._left.items():
            if not left:
                self._answered.add(call_id)
            elif call_id in self._early:
                self._early.discard(call_id)
            elif self._strangers:
                self._strangers -= 1
            else:
                self._report("missing_result", self._turn, call_id)
                self._late.add(call_id)
        self._names, self._left, self._strangers = {}, {}, 0


def _index_of(issue: TranscriptIssue) -> int:
    return issue.index


def _last_calls(messages: list[object]) -> dict[str, int]:
    return {
        block.id: index
        for index, message in enumerate(messages)
        if isinstance(message, AssistantMessage) and not malformation(message)
        for block in message.content
        if isinstance(block, ToolCall)
    }


def _is_object(call: ToolCall) -> bool:
    """Tell whether a call's arguments are an object, and empty beside a malformed text."""
    try:
        arguments = cast("object", call.arguments.decoded())
    except msgspec.DecodeError:
        return False
    return isinstance(arguments, dict) and not (call.malformed and arguments)


def malformation(message: object) -> str:
    """Return what is wrong with a message's own shape, `""` for nothing."""
    try:
        clean_message(message)
    except TypeError as error:
        return str(error)
    return ""


def clean_message(message: object) -> Message:
    """Return a message with plain Unicode text in all its parts: lone surrogates replaced, subclasses of `str` and `tuple` made plain; the same one when nothing was to be done.

    Only the very classes of this module are messages and blocks: a subclass may be made mutable.

    Raises:
        TypeError: it is no well-shaped message; says what is wrong.
    """
    if type(message) is AssistantMessage:
        return _clean_response(message)
    if type(message) is ToolResult:
        return _clean_result(message)
    if type(message) is not UserMessage:
        msg = f"{type(message).__name__} is no message"
        raise TypeError(msg)
    identity, content = clean_text(message.id), _clean_content(message.content)
    return message if identity is message.id and content is message.content else UserMessage(identity, content)


def _clean_response(message: AssistantMessage) -> AssistantMessage:
    identity, given = clean_text(message.id), message.content
    if type(given) is not tuple:
        given = _plain_tuple(given)
    content = tuple([clean_block(block) for block in given])
    if identity is message.id and given is message.content and all(map(is_, content, given)):
        return message
    return AssistantMessage(identity, content)


def _clean_result(message: ToolResult) -> ToolResult:
    if not isinstance(cast("object", message.is_error), bool):
        msg = "is_error is a bool"
        raise TypeError(msg)
    call_id, name = clean_text(message.tool_call_id), clean_text(message.tool_name)
    made = ToolResult(clean_text(message.id), call_id, name, _clean_content(message.content), message.is_error)
    return message if all(getattr(made, name) is getattr(message, name) for name in _RESULT_FIELDS) else made


def _clean_content(content: str | tuple[ContentBlock, ...]) -> str | tuple[ContentBlock, ...]:
    """Return the content of a message that is no response: text, or a tuple of texts and pictures."""
    if isinstance(content, str):
        return clean_text(content)
    given = content if type(content) is tuple else _plain_tuple(content)
    strange = next((block for block in given if type(block) not in {Text, Image}), None)
    if strange is not None:
        msg = f"a {type(strange).__name__} does not belong there"
        raise TypeError(msg)
    made = tuple([clean_image(block) if isinstance(block, Image) else clean_block(block) for block in given])
    return content if given is content and all(map(is_, made, given)) else made


def _plain_tuple(content: object) -> tuple[ContentBlock, ...]:
    if not isinstance(content, tuple):
        msg = f"its content is a {type(content).__name__}, not a tuple of blocks"
        raise TypeError(msg)
    return tuple(cast("tuple[ContentBlock, ...]", content))


def clean_image(block: Image) -> Image:
    """Return a picture that is one of the known kinds, not too large, and valid base64.

    Raises:
        TypeError: it is not; says what is wrong.
    """
    if block.media_type not in IMAGE_TYPES:
        msg = f"a picture is {', '.join(sorted(IMAGE_TYPES))}, not {block.media_type!r:.80}"
        raise TypeError(msg)
    if not block.data or len(block.data) > MAX_IMAGE_CHARACTERS:
        msg = f"a picture has 1 to {MAX_IMAGE_CHARACTERS:,} characters of base64, not {len(block.data):,}"
        raise TypeError(msg)
    try:
        binascii.a2b_base64(block.data, strict_mode=True)
    except ValueError as error:
        msg = f"a picture is base64: {error}"
        raise TypeError(msg) from error
    media_type, data = clean_text(block.media_type), clean_text(block.data)
    return block if media_type is block.media_type and data is block.data else Image(media_type, data)


def clean_block(block: object) -> Text | Thinking | ToolCall:
    """Return a block of a response with plain Unicode text in all its parts, as `clean_message`.

    Raises:
        TypeError: it is no well-shaped block; says what is wrong.
    """
    if type(block) is Text:
        text = clean_text(block.text)
        return block if text is block.text else Text(text)
    if type(block) is ToolCall:
        return clean_call(block)
    if type(block) is Thinking:
        text, signature = clean_text(block.text), clean_text(block.signature)
        return block if text is block.text and signature is block.signature else Thinking(text, signature)
    msg = f"a {type(block).__name__} does not belong there"
    raise TypeError(msg)


def clean_call(call: object) -> ToolCall:
    """Return a call with plain Unicode text in all its parts, as `clean_message`.

    Raises:
        TypeError: it is no well-shaped call; says what is wrong.
    """
    if type(call) is not ToolCall or type(call.arguments) is not JsonObject:
        msg = f"a {type(call).__name__} is no call with a JSON object"
        raise TypeError(msg)
    call_id, name, malformed = clean_text(call.id), clean_text(call.name), clean_text(call.malformed)
    same = call_id is call.id and name is call.name and malformed is call.malformed
    return call if same else ToolCall(call_id, name, call.arguments, malformed)


class Transcript(Shared[Message]):
    """A transcript known to be valid: checked and cleaned once, at the door, and growing by what is valid in itself, user messages and whole turns.

    Taking a reference is O(1), and so is handing it to the next run: nobody checks or copies it again. `appended` checks what it takes; `extended` takes what was checked
    already: user messages, or one whole turn.
    """

    __slots__ = ()

    @classmethod
    def checked(cls, messages: Iterable[Message]) -> Self:
        """Return a transcript of messages from outside.

        Raises:
            ValueError: they are no valid transcript; names the first fault.
        """
        known = tuple(messages)
        issues = validate_transcript(known)
        if issues:
            first = issues[0]
            raise ValueError(f"message {first.index}: {first.code} {first.detail}".rstrip())
        return cls(clean_message(message) for message in known)

    def appended(self, item: Message) -> Self:
        """Return a transcript with one more user message or response without calls.

        Raises:
            ValueError: it is not valid in itself.
        """
        return self.extended(type(self).checked((item,)))
