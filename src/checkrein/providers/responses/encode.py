"""A request as the body of a Responses call.

Pure. The API keeps nothing (`store` is false), so the whole conversation is sent each time, and reasoning comes encrypted and goes back as it came. The rules of the wire: every
call has its output; ids of calls are unique; no part is empty; a reasoning item is followed by what it led to; a function says whether it is strict, for the API takes one that
does not say so as strict.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from checkrein.messages import (
    AssistantMessage,
    ContentBlock,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from checkrein.ports.model import ModelRequest, ToolSchema
from checkrein.providers.model import Body
from checkrein.providers.responses.items import phase_of, reasoning_of
from checkrein.providers.responses.strict import is_strict
from checkrein.providers.settings import ProviderSettings
from checkrein.providers.transcript import (
    EMPTY,
    CallIds,
    cache_key,
    check_tools,
    last_user_index,
    parts_of,
    result_text,
    wire_name,
)
from checkrein.values import JsonValue

__all__ = ["COMPATIBLE", "OPENAI", "Dialect", "encode", "encode_openai"]


class Dialect(msgspec.Struct, frozen=True):
    """Where the servers that speak this wire differ.

    Attributes:
        takes_plain_reasoning: whether reasoning that is not encrypted may be sent back; OpenAI looks for it in its store, and finds nothing.
        has_cache_key: whether requests with one beginning can be told to the server by a key.
    """

    takes_plain_reasoning: bool
    has_cache_key: bool


COMPATIBLE: Final = Dialect(takes_plain_reasoning=True, has_cache_key=False)
OPENAI: Final = Dialect(takes_plain_reasoning=False, has_cache_key=True)
_ENCRYPTED: Final = "reasoning.encrypted_content"
_PLAIN_MODELS: Final = ("gpt-3", "gpt-4", "-chat")
"""In the names of models that do not reason; the API refuses to be asked for their encrypted reasoning."""


def encode(request: ModelRequest, settings: ProviderSettings, model: str, *, dialect: Dialect = COMPATIBLE) -> Body:
    """Return the body of a request.

    Raises:
        ModelError: `MODEL_REQUEST`: a tool's name is none that providers take.
    """
    check_tools(request.tools)
    body: dict[str, JsonValue] = {
        "model": model,
        "input": list(_input(request.messages, settings, dialect)) or [_user(EMPTY)],
        "stream": True,
        "store": False,
    }
    if settings.reasoning_back != "none" and _reasons(model):
        body["include"] = [_ENCRYPTED]
    body |= _options(settings)
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if settings.tool_choice != "auto":
            body["tool_choice"] = settings.tool_choice
        if settings.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = settings.parallel_tool_calls
    if settings.cache and dialect.has_cache_key:
        body["prompt_cache_key"] = cache_key(request, settings.system)
    return body | settings.extra.decoded()


encode_openai = partial(encode, dialect=OPENAI)
"""`encode` for OpenAI itself."""


def _reasons(model: str) -> bool:
    return not any(part in model for part in _PLAIN_MODELS)


def _options(settings: ProviderSettings) -> dict[str, JsonValue]:
    options: dict[str, JsonValue] = {
        "instructions": settings.system or None,
        "max_output_tokens": settings.max_output_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "reasoning": {"effort": settings.reasoning_effort} if settings.reasoning_effort else None,
    }
    if settings.response_schema is not None:
        form: JsonValue = {
            "type": "json_schema",
            "name": settings.response_name,
            "schema": settings.response_schema.decoded(),
            "strict": is_strict(settings.response_schema),
        }
        options["text"] = {"format": form}
    return {name: value for name, value in options.items() if value is not None}


def _tool(tool: ToolSchema) -> JsonValue:
    function: dict[str, JsonValue] = {
        "type": "function",
        "name": tool.name,
        "parameters": tool.parameters.decoded(),
        "strict": is_strict(tool.parameters),
    }
    if tool.description:
        function["description"] = tool.description
    return function


def _input(messages: Sequence[Message], settings: ProviderSettings, dialect: Dialect) -> Iterator[JsonValue]:
    ids = CallIds()
    plain_from = _plain_reasoning_from(messages, settings, dialect)
    for index, message in enumerate(messages):
        if isinstance(message, UserMessage):
            yield _user(message.content)
        elif isinstance(message, ToolResult):
            yield {
                "type": "function_call_output",
                "call_id": ids.of(message.tool_call_id),
                "output": _output(message),
            }
        else:
            ids.begin_turn()
            items = _Items(ids, keeps_encrypted=settings.reasoning_back != "none", keeps_plain=index >= plain_from)
            yield from items.of(message)


def _plain_reasoning_from(messages: Sequence[Message], settings: ProviderSettings, dialect: Dialect) -> int:
    """Return from which message on reasoning that is not encrypted is sent back."""
    if settings.reasoning_back == "none" or not dialect.takes_plain_reasoning:
        return len(messages)
    return 0 if settings.reasoning_back == "all" else last_user_index(messages)


def _user(content: str | Sequence[ContentBlock]) -> JsonValue:
    return {"type": "message", "role": "user", "content": [_part(part) for part in parts_of(content)]}


def _part(part: Text | Image) -> JsonValue:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    return {"type": "input_image", "detail": "auto", "image_url": f"data:{part.media_type};base64,{part.data}"}


def _output(result: ToolResult) -> JsonValue:
    """Return plain text where there is nothing else: many servers take no parts here."""
    parts = parts_of(result.content)
    pictures = [part for part in parts if isinstance(part, Image)]
    if not pictures:
        return result_text(result)
    if result.is_error:
        return [_part(Text(result_text(result))), *map(_part, pictures)]
    return [_part(part) for part in parts]


class _Items:
    """The items of one assistant message."""

    def __init__(self, ids: CallIds, *, keeps_encrypted: bool, keeps_plain: bool) -> None:
        self._ids = ids
        self._keeps_encrypted = keeps_encrypted
        self._keeps_plain = keeps_plain
        self._texts: list[str] = []
        self._items: list[dict[str, JsonValue]] = []

    def of(self, message: AssistantMessage) -> Sequence[JsonValue]:
        """Return the items; none for a message without text and calls, and none of reasoning that led to nothing."""
        for block in message.content:
            if isinstance(block, Text):
                self._texts.append(block.text)
            elif isinstance(block, ToolCall):
                self._end_text()
                self._items.append(self._call(block))
            elif isinstance(block, Thinking):
                self._think(block)
        self._end_text()
        while self._items and self._items[-1]["type"] == "reasoning":
            self._items.pop()
        return [*self._items]

    def _think(self, block: Thinking) -> None:
        phase = phase_of(block)
        if phase:
            self._end_text(phase)
        item = reasoning_of(block)
        if item is None:
            return
        if self._keeps_encrypted if item.get("encrypted_content") else self._keeps_plain:
            self._end_text()
            self._items.append(dict(item))

    def _end_text(self, phase: str = "") -> None:
        content: list[JsonValue] = [{"type": "output_text", "text": text} for text in self._texts if text.strip()]
        self._texts = []
        if not content:
            return
        item: dict[str, JsonValue] = {"type": "message", "role": "assistant", "content": content}
        self._items.append({**item, "phase": phase} if phase else item)

    def _call(self, call: ToolCall) -> dict[str, JsonValue]:
        """Return a call as it was made. Arguments that were no JSON are sent as none: its result says what was wrong."""
        return {
            "type": "function_call",
            "call_id": self._ids.of(call.id),
            "name": wire_name(call.name),
            "arguments": call.arguments.encoded.decode(),
        }
