"""A request as the body of a Messages call.

Pure. The rules of the wire: the first message is the user's and roles alternate; the results of a response stand in the user message right after it, before all else there,
each for one call; no text is empty; ids and names have letters, digits, `_` and `-` only; `max_tokens` is always said. Reasoning goes back as it came, with its signature; that of
other providers, and that without a signature, is left out, for the API refuses it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from checkrein.messages import AssistantMessage, Image, Message, Text, Thinking, ToolCall, ToolResult, UserMessage
from checkrein.ports.model import ModelRequest, ToolSchema
from checkrein.providers.anthropic.schema import answer_schema, input_schema
from checkrein.providers.model import Body
from checkrein.providers.settings import ProviderSettings
from checkrein.providers.signature import opened
from checkrein.providers.transcript import EMPTY, CallIds, check_tools, parts_of, wire_name
from checkrein.values import JsonValue

__all__ = ["DEFAULT_MAX_TOKENS", "REDACTED", "SIGNED", "encode"]

DEFAULT_MAX_TOKENS: Final = 32_000
"""`max_tokens` when nothing is set: what every current model can write."""
_ANSWER_TOKENS: Final = 8_000
SIGNED: Final = "thinking"
"""Begins the signature of reasoning that may be read."""
REDACTED: Final = "redacted"
"""Begins the signature of reasoning that the provider hides; the rest is its data."""
_CACHE: Final[Mapping[str, JsonValue]] = {"type": "ephemeral"}
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}

_Block = dict[str, JsonValue]


class _Turn(msgspec.Struct):
    """A message of the wire while it is put together."""

    role: str
    content: list[_Block]

    def posted(self) -> JsonValue:
        """Return it as it is posted."""
        return {"role": self.role, "content": [*self.content]}


def encode(request: ModelRequest, settings: ProviderSettings, model: str) -> Body:
    """Return the body of a request.

    Raises:
        ModelError: `MODEL_REQUEST`: a tool's name is none that providers take.
    """
    check_tools(request.tools)
    turns = _turns(request.messages)
    system: list[_Block] = [{"type": "text", "text": settings.system}] if settings.system.strip() else []
    tools = [_tool(tool) for tool in request.tools] or _past_tools(request.messages)
    if settings.cache:
        _mark_stable(tools, system, turns)
    body: dict[str, JsonValue] = {
        "model": model,
        "max_tokens": settings.max_output_tokens or _max_tokens(settings.reasoning_tokens or 0),
        "messages": [turn.posted() for turn in turns],
        "stream": True,
    }
    if system:
        body["system"] = [*system]
    if tools:
        body["tools"] = [*tools]
        body |= _tool_choice(settings, has_tools=bool(request.tools))
    return body | _options(settings) | settings.extra.decoded()


def _max_tokens(reasoning: int) -> int:
    """Return a limit under which as much reasoning leaves room for an answer."""
    return max(DEFAULT_MAX_TOKENS, reasoning + _ANSWER_TOKENS)


def _options(settings: ProviderSettings) -> dict[str, JsonValue]:
    options: dict[str, JsonValue] = {}
    if settings.temperature is not None:
        options["temperature"] = settings.temperature
    if settings.top_p is not None:
        options["top_p"] = settings.top_p
    if settings.reasoning_tokens is not None:
        options["thinking"] = {"type": "enabled", "budget_tokens": settings.reasoning_tokens}
    output: dict[str, JsonValue] = {}
    if settings.reasoning_effort:
        output["effort"] = settings.reasoning_effort
    if settings.response_schema is not None:
        output["format"] = {"type": "json_schema", "schema": answer_schema(settings.response_schema)}
    if output:
        options["output_config"] = output
    return options


def _tool(tool: ToolSchema) -> _Block:
    made: _Block = {"name": tool.name, "input_schema": input_schema(tool.parameters)}
    return made | {"description": tool.description} if tool.description else made


def _past_tools(messages: Sequence[Message]) -> list[_Block]:
    """Return the tools that past calls name: the API refuses calls in a request that offers no tool at all."""
    blocks = (block for message in messages if isinstance(message, AssistantMessage) for block in message.content)
    names = dict.fromkeys(wire_name(block.name) for block in blocks if isinstance(block, ToolCall))
    return [{"name": name, "input_schema": {"type": "object"}} for name in names]


def _tool_choice(settings: ProviderSettings, *, has_tools: bool) -> Mapping[str, JsonValue]:
    """Return how the model may use tools; those of the past only are not for use."""
    kind = _CHOICES[settings.tool_choice] if has_tools else "none"
    choice: _Block = {"type": kind}
    if settings.parallel_tool_calls is not None and kind != "none":
        choice["disable_parallel_tool_use"] = not settings.parallel_tool_calls
    return {} if choice == {"type": "auto"} else {"tool_choice": choice}


def _mark_stable(tools: list[_Block], system: list[_Block], turns: Sequence[_Turn]) -> None:
    """Ask for a cache of what stays as it is: the tools, the system text, and the conversation up to the last and the last but one user message.

    Four marks are the most the API takes. The one before the last finds what the request before has written, however many blocks came since.
    """
    ends = [turn.content for turn in turns if turn.role == "user"][-2:]
    for blocks in (tools, system, *ends):
        if blocks:
            blocks[-1]["cache_control"] = dict(_CACHE)


def _turns(messages: Sequence[Message]) -> list[_Turn]:
    """Return the messages by turns: the user's first and last, for a request asks for an answer, and roles in alternation."""
    turns = [_Turn("user", [])]
    ids = CallIds()
    pictures: list[_Block] = []
    for message in messages:
        if isinstance(message, ToolResult):
            _extend(turns, "user", [_result(message, ids)])
            pictures += _pictures(message)
            continue
        _extend(turns, "user", pictures)
        pictures = []
        if isinstance(message, UserMessage):
            _extend(turns, "user", map(_part, parts_of(message.content)))
        else:
            _extend(turns, "assistant", _assistant(message, ids))
    _extend(turns, "user", pictures)
    if turns[-1].role != "user":
        turns.append(_Turn("user", []))
    for turn in (turns[0], turns[-1]):
        if not turn.content:
            turn.content.append({"type": "text", "text": EMPTY})
    return turns


def _extend(turns: list[_Turn], role: str, blocks: Iterable[_Block]) -> None:
    """Add blocks to the last turn if it is of that role, else begin the next one."""
    content = list(blocks)
    if not content:
        return
    if turns[-1].role == role:
        turns[-1].content += content
    else:
        turns.append(_Turn(role, content))


def _part(part: Text | Image) -> _Block:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": part.data}}


def _result(result: ToolResult, ids: CallIds) -> _Block:
    """Return the result of a call; that of a failed one is text only."""
    parts = parts_of(result.content)
    if result.is_error:
        parts = tuple(part for part in parts if isinstance(part, Text)) or (Text(EMPTY),)
    made: _Block = {"type": "tool_result", "tool_use_id": ids.of(result.tool_call_id), "content": [*map(_part, parts)]}
    return made | {"is_error": True} if result.is_error else made


def _pictures(result: ToolResult) -> list[_Block]:
    """Return the pictures of a failed call, which follow after all results."""
    images = [part for part in parts_of(result.content) if isinstance(part, Image)] if result.is_error else []
    if not images:
        return []
    return [{"type": "text", "text": f"From the result of {wire_name(result.tool_name)}:"}, *map(_part, images)]


def _assistant(message: AssistantMessage, ids: CallIds) -> list[_Block]:
    """Return the blocks of a response; none for one that holds neither text nor calls, which the wire has no form for."""
    ids.begin_turn()
    blocks = list(_response_blocks(message, ids))
    return blocks if any(block["type"] in {"text", "tool_use"} for block in blocks) else []


def _response_blocks(message: AssistantMessage, ids: CallIds) -> Iterator[_Block]:
    for block in message.content:
        if isinstance(block, ToolCall):
            # Arguments that were no JSON object are sent as none: the result says what was wrong.
            name, arguments = wire_name(block.name), block.arguments.decoded()
            yield {"type": "tool_use", "id": ids.of(block.id), "name": name, "input": arguments}
        elif isinstance(block, Text):
            if block.text.strip():
                yield {"type": "text", "text": block.text}
        elif isinstance(block, Thinking):
            yield from _reasoning(block)


def _reasoning(block: Thinking) -> Iterator[_Block]:
    kind, _, payload = (opened("messages", block.signature) or "").partition(":")
    if kind == REDACTED and payload:
        yield {"type": "redacted_thinking", "data": payload}
    elif kind == SIGNED and payload:
        yield {"type": "thinking", "thinking": block.text, "signature": payload}
