"""A scripted reply as the events of Anthropic's Messages API; `fake_model` serves them.

Pure: a reply goes in, events come out, in the order and with the fields in which the API sends them.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from checkrein.testing.script import Call, Reply
from checkrein.values import JsonValue

__all__ = ["message_events"]

_WORD: Final = re.compile(r"\s*\S+\s*|\s+")
_SIGNATURE: Final = "ZmFrZQ=="
_Json = dict[str, JsonValue]


def message_events(reply: Reply, place: int, *, model: str, read: int) -> Iterator[_Json]:
    """Yield the events of the answer number `place`, from 0.

    Args:
        reply: what is said.
        place: its number.
        model: the name that was asked for.
        read: the tokens of the request.
    """
    usage: _Json = {"input_tokens": read, "output_tokens": 0}
    head: _Json = {"id": f"msg_fake_{place + 1}", "type": "message", "role": "assistant", "model": model, "content": []}
    yield {"type": "message_start", "message": {**head, "stop_reason": None, "stop_sequence": None, "usage": usage}}
    written = 0
    for number, (block, deltas) in enumerate(_blocks(reply, place)):
        written += len(deltas)
        yield {"type": "content_block_start", "index": number, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": number, "delta": delta}
        yield {"type": "content_block_stop", "index": number}
    stop: _Json = {"stop_reason": "tool_use" if reply.call else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": written}}
    yield {"type": "message_stop"}


def _blocks(reply: Reply, place: int) -> Iterator[tuple[_Json, list[_Json]]]:
    """Yield how each block begins, and its pieces."""
    if reply.thinking:
        pieces: list[_Json] = [{"type": "thinking_delta", "thinking": word} for word in _WORD.findall(reply.thinking)]
        signed: _Json = {"type": "signature_delta", "signature": _SIGNATURE}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*pieces, signed]
    if reply.text:
        yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": word} for word in _WORD.findall(reply.text)]
    for number, call in enumerate(reply.call):
        begun: _Json = {"type": "tool_use", "id": f"toolu_{place + 1}_{number + 1}", "name": call.tool, "input": {}}
        yield begun, _input(call)


def _input(call: Call) -> list[_Json]:
    """Return the arguments in two pieces."""
    text = json.dumps(call.arguments, ensure_ascii=False)
    half = len(text) // 2
    return [{"type": "input_json_delta", "partial_json": piece} for piece in (text[:half], text[half:])]
