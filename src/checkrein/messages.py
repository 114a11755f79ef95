"""Message values: what a model reads and writes.

Messages are immutable all the way down and compare by value. `role` and `type` are class constants equal to the tag on the wire. Nothing here
knows a provider, a store or a loop; the module imports `values` and `errors` alone.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

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


if TYPE_CHECKING:
    Arguments: TypeAlias = JsonObject | Mapping[str, object]
else:
    Arguments = JsonObject  # what is stored; msgspec decodes to this, and __post_init__ makes it of a plain mapping


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
    arguments: Arguments
    malformed: str = ""

    def __post_init__(self) -> None:
        """Turn plain arguments into a `JsonObject`."""
        if not isinstance(self.arguments, JsonObject):
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
