"""A request as the body of an OpenAI-compatible Chat Completions call.

Pure. The rules of the wire: every call has its `tool` message right after the assistant's, before any other; ids are unique; no part is empty; pictures of results,
for which a `tool` message has no room, follow in a user message. Reasoning goes back in the very field in which it came, as far as the server wants it.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from checkrein.errors import InvalidJson
from checkrein.messages import AssistantMessage, Image, Message, Text, Thinking, ToolCall, ToolResult, UserMessage
from checkrein.ports.model import ModelRequest, ToolSchema
from checkrein.providers.model import Body
from checkrein.providers.settings import ProviderSettings
from checkrein.providers.signature import opened
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
from checkrein.values import JsonObject, JsonValue, parse_json

__all__ = ["COMPATIBLE", "OPENAI", "Dialect", "encode", "encode_openai", "is_strict_schema"]

DETAILS: Final = "reasoning_details"
"""The field in which OpenRouter says reasoning as a list, and wants it back unchanged."""
EXTRAS: Final = "extra_content"
"""The field of a call in which Gemini says what must come back with the call, or it refuses the next request."""
PLAIN_FIELDS: Final = ("reasoning_content", "reasoning")
"""The fields in which servers say reasoning as text."""


class Dialect(msgspec.Struct, frozen=True):
    """Where the servers that speak this wire differ.

    Attributes:
        limit_field: the field that limits the tokens of a response.
        takes_reasoning: whether reasoning may be sent back.
        has_cache_key: whether requests with one beginning can be told to the server by a key.
    """

    limit_field: str
    takes_reasoning: bool
    has_cache_key: bool


COMPATIBLE: Final = Dialect("max_tokens", takes_reasoning=True, has_cache_key=False)
OPENAI: Final = Dialect("max_completion_tokens", takes_reasoning=False, has_cache_key=True)


def encode(request: ModelRequest, settings: ProviderSettings, model: str, *, dialect: Dialect = COMPATIBLE) -> Body:
    """Return the body of a request.

    Raises:
        ModelError: `MODEL_REQUEST`: a tool's name is none that providers take.
    """
    check_tools(request.tools)
    body: dict[str, JsonValue] = {
        "model": model,
        "messages": list(_messages(request.messages, settings, dialect)) or [{"role": "user", "content": EMPTY}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    body |= _options(settings, dialect)
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


def _options(settings: ProviderSettings, dialect: Dialect) -> dict[str, JsonValue]:
    options: dict[str, JsonValue] = {
        dialect.limit_field: settings.max_output_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed,
        "reasoning_effort": settings.reasoning_effort or None,
    }
    if settings.response_schema is not None:
        schema = settings.response_schema
        form: JsonValue = {
            "name": settings.response_name,
            "schema": schema.decoded(),
            "strict": is_strict_schema(schema),
        }
        options["response_format"] = {"type": "json_schema", "json_schema": form}
    return {name: value for name, value in options.items() if value is not None}


def _tool(tool: ToolSchema) -> JsonValue:
    function: dict[str, JsonValue] = {"name": tool.name, "parameters": tool.parameters.decoded()}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def is_strict_schema(schema: JsonObject) -> bool:
    """Tell whether a schema keeps the rules under which OpenAI holds a model to it: every object is closed, and all its properties are required."""
    return _is_strict(schema.decoded())


def _is_strict(schema: JsonValue) -> bool:
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, dict):
        required, names = schema.get("required"), list(properties) if isinstance(properties, dict) else []
        listed = required if isinstance(required, list) else []
        if schema.get("additionalProperties") is not False or sorted(map(str, listed)) != sorted(names):
            return False
    return all(_is_strict(value) for value in schema.values())


def _messages(messages: Sequence[Message], settings: ProviderSettings, dialect: Dialect) -> Iterator[JsonValue]:
    if settings.system:
        yield {"role": "system", "content": settings.system}
    ids = CallIds()
    pictures: list[JsonValue] = []
    kept_from = _reasoning_from(messages, settings, dialect)
    for index, message in enumerate(messages):
        if isinstance(message, ToolResult):
            yield {"role": "tool", "tool_call_id": ids.of(message.tool_call_id), "content": result_text(message)}
            pictures += _pictures(message)
            continue
        if pictures:
            yield {"role": "user", "content": pictures}
            pictures = []
        if isinstance(message, UserMessage):
            yield {"role": "user", "content": _user_content(message)}
        else:
            yield from _assistant(message, ids, keeps_reasoning=index >= kept_from)
    if pictures:
        yield {"role": "user", "content": pictures}


def _reasoning_from(messages: Sequence[Message], settings: ProviderSettings, dialect: Dialect) -> int:
    """Return from which message on reasoning is sent back."""
    if settings.reasoning_back == "none" or not dialect.takes_reasoning:
        return len(messages)
    return 0 if settings.reasoning_back == "all" else last_user_index(messages)


def _user_content(message: UserMessage) -> JsonValue:
    """Return plain text where there is nothing else: many servers take parts only where there are pictures."""
    parts = parts_of(message.content)
    texts = [part.text for part in parts if isinstance(part, Text)]
    return "\n\n".join(texts) if len(texts) == len(parts) else [_part(part) for part in parts]


def _part(part: Text | Image) -> JsonValue:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{part.data}"}}


def _pictures(result: ToolResult) -> list[JsonValue]:
    images = [part for part in parts_of(result.content) if isinstance(part, Image)]
    if not images:
        return []
    return [{"type": "text", "text": f"From the result of {wire_name(result.tool_name)}:"}, *map(_part, images)]


def _assistant(message: AssistantMessage, ids: CallIds, *, keeps_reasoning: bool) -> Iterator[JsonValue]:
    """Yield the message; none for a response that holds neither text nor calls, which the wire has no form for."""
    ids.begin_turn()
    text = "".join(block.text for block in message.content if isinstance(block, Text))
    calls: list[JsonValue] = [_call(block, ids) for block in message.content if isinstance(block, ToolCall)]
    if not text.strip() and not calls:
        return
    made: dict[str, JsonValue] = {"role": "assistant", "content": text if text.strip() else None}
    if calls:
        made["tool_calls"] = calls
    if keeps_reasoning:
        made |= _reasoning(message)
        _add_extras(message, calls)
    yield made


def _call(call: ToolCall, ids: CallIds) -> JsonValue:
    """Return a call as it was made. Arguments that were no JSON are sent as none: its result says what was wrong, and many servers parse what they are sent."""
    function: JsonValue = {"name": wire_name(call.name), "arguments": call.arguments.encoded.decode()}
    return {"type": "function", "id": ids.of(call.id), "function": function}


def _reasoning(message: AssistantMessage) -> Mapping[str, JsonValue]:
    """Return the fields in which reasoning goes back; a signature that names another field is nobody's."""
    fields: dict[str, JsonValue] = {}
    for block in message.content:
        payload = opened("chat", block.signature) if isinstance(block, Thinking) else None
        if payload is None or not isinstance(block, Thinking):
            continue
        field, _, details = payload.partition(":")
        if field in PLAIN_FIELDS and block.text:
            fields[field] = f"{fields.get(field, '')}{block.text}"
        elif field == DETAILS:
            with contextlib.suppress(InvalidJson):
                fields[DETAILS] = parse_json(details)
    return fields


def _add_extras(message: AssistantMessage, calls: list[JsonValue]) -> None:
    """Give the calls back what came with them, by their position."""
    for block in message.content:
        payload = opened("chat", block.signature) if isinstance(block, Thinking) else None
        field, _, text = (payload or "").partition(":")
        if field != EXTRAS:
            continue
        with contextlib.suppress(InvalidJson):
            extras = parse_json(text)
            for index, call in enumerate(calls):
                if isinstance(extras, dict) and isinstance(call, dict) and str(index) in extras:
                    call[EXTRAS] = extras[str(index)]
