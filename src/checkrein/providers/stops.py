"""Why a model stopped, wire by wire: the one table from the providers' words to ours.

Pure. The invariant: no word is lost or guessed. A word that no row knows makes the response unusable (`MODEL_PROTOCOL_ERROR`), because what it means for the calls in the
response is unknown.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from checkrein.errors import ModelError
from checkrein.ports.model import StopReason
from checkrein.providers.failures import broken
from checkrein.values import shorten

__all__ = ["GIVEN_UP", "STOPS", "Stop", "Wire", "stop_reason"]

Wire: TypeAlias = Literal["chat", "responses", "messages"]


class Stop(msgspec.Struct, frozen=True):
    """One row of the table.

    Attributes:
        reason: ours.
        meaning: for the documentation.
    """

    reason: StopReason
    meaning: str


STOPS: Final[Mapping[Wire, Mapping[str, Stop]]] = {
    "chat": {
        "stop": Stop("stop", "said all it had to say, or met a stop sequence"),
        "eos": Stop("stop", "the same, in the words of some servers"),
        "tool_calls": Stop("tool_call", "asks for tools"),
        "function_call": Stop("tool_call", "the same, in the words of old servers"),
        "length": Stop("length", "met `max_output_tokens` or the end of the context"),
        "model_length": Stop("length", "met the end of the context, in the words of some servers"),
        "content_filter": Stop("refusal", "the provider's filter cut the answer"),
        "sensitive": Stop("refusal", "the same, in the words of some servers"),
    },
    "responses": {
        "completed": Stop("stop", "status `completed`; with function calls it is `tool_call`"),
        "max_output_tokens": Stop("length", "status `incomplete`, for this reason"),
        "max_messages": Stop("length", "status `incomplete`, for this reason"),
        "steered": Stop("length", "status `incomplete`: somebody else gave the response a new direction"),
        "content_filter": Stop("refusal", "status `incomplete`, for this reason"),
        "refusal": Stop("refusal", "status `completed`, and a part of the answer is a refusal"),
    },
    "messages": {
        "end_turn": Stop("stop", "said all it had to say"),
        "stop_sequence": Stop("stop", "met a stop sequence"),
        "tool_use": Stop("tool_call", "asks for tools"),
        "max_tokens": Stop("length", "met `max_output_tokens`"),
        "model_context_window_exceeded": Stop("length", "met the end of the context"),
        "pause_turn": Stop("length", "the provider paused a long turn of its own tools; none of it is used"),
        "refusal": Stop("refusal", "the model or a filter refused"),
    },
}
"""By wire and the wire's own word.

A response that says `stop` and holds calls is read as `tool_call`, on every wire: that is what OpenAI itself says when one function is forced, and what many servers say.
"""

GIVEN_UP: Final[Mapping[Wire, frozenset[str]]] = {
    "chat": frozenset({"abort", "error", "insufficient_system_resource", "network_error"}),
    "responses": frozenset(),
    "messages": frozenset(),
}
"""Words with which a server says that it could not go on: the attempt failed, which may pass."""


def stop_reason(wire: Wire, word: str, *, has_calls: bool) -> StopReason:
    """Return our reason for a wire's word.

    Raises:
        ModelError: `MODEL_PROTOCOL_ERROR`: no row knows the word; `MODEL_STREAM_FAILED`: the server could not go on.
    """
    if word in GIVEN_UP[wire]:
        raise broken(f"the server could not go on: {word}")
    row = STOPS[wire].get(word)
    if row is None:
        text = f"the model stopped for {shorten(word, 80)!r}, which is no stop reason of this wire"
        raise ModelError(text, code="MODEL_PROTOCOL_ERROR")
    return "tool_call" if row.reason == "stop" and has_calls else row.reason
