"""The stream of a Responses call, decoded.

Pure. The wire's end marker is `response.completed` or `response.incomplete`; `response.failed` and `error` are failures. The invariant: the calls of a response are whole or
there are none: events that are numbered have no gap, outputs begin one after the other, each is done or stands in the response that the end marker carries, and what came in
pieces is what came as a whole.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from checkrein.ports.model import Chunk
from checkrein.providers.failures import WireError, broken, read_error
from checkrein.providers.responses.items import sealed_phase, sealed_reasoning
from checkrein.providers.responses.wire import (
    Item,
    ItemEvent,
    Output,
    Part,
    PieceEvent,
    Response,
    ResponseEvent,
    tokens_of,
)
from checkrein.providers.stops import stop_reason
from checkrein.providers.stream import Decoder, InBandError, WireEvent, read_error_event, read_event
from checkrein.values import clean_text

__all__ = ["ResponsesDecoder"]

_DONE: Final = "[DONE]"
_FIRST_NUMBERS: Final = frozenset({0, 1})
_PARAGRAPH: Final = "\n\n"
T = TypeVar("T")


class _Head(msgspec.Struct):
    type: str | None = None
    sequence_number: int | None = None


class ResponsesDecoder(Decoder):
    """Decodes one Responses stream."""

    def __init__(self, request_id: str) -> None:
        super().__init__(request_id)
        self._sequence: int | None = None
        self._outputs: list[Output] = []
        self._texts: dict[tuple[int, int], list[str]] = {}
        self._thought: tuple[int, str, int] | None = None
        self._is_refusal = False
        self._is_told = False
        self._takers: Mapping[str, Callable[[str], list[Chunk]]] = {
            "response.created": self._begun,
            "response.output_item.added": self._added,
            "response.output_item.done": self._item_done,
            "response.content_part.added": self._part_added,
            "response.output_text.delta": self._text_piece,
            "response.output_text.done": self._text_whole,
            "response.refusal.delta": self._refusal_piece,
            "response.refusal.done": self._refusal_whole,
            "response.reasoning_summary_text.delta": self._summary_piece,
            "response.reasoning_text.delta": self._reasoning_piece,
            "response.function_call_arguments.delta": self._arguments_piece,
            "response.function_call_arguments.done": self._arguments_whole,
            "response.completed": self._completed,
            "response.incomplete": self._incomplete,
            "response.failed": self._failed,
        }

    def take(self, event: WireEvent) -> Sequence[Chunk]:
        """Return the chunks of the next event; some servers close the stream with one more, which says nothing.

        Raises:
            ModelError: the stream is broken.
            InBandError: the provider reports a failure.
        """
        if self.is_closed and not self._is_told and event.data.strip() == _DONE:
            self._is_told = True
            return ()
        return super().take(event)

    def _take(self, event: WireEvent) -> Sequence[Chunk]:
        """Decode one event; one that no row knows is counted and passed over."""
        data = event.data
        if data.strip() == _DONE:
            raise broken("the stream was closed without its last event")
        if event.event == "error":
            raise read_error_event(data)
        head = read_event(data, _Head)
        kind = head.type or event.event
        if kind == "error":
            raise read_error_event(data)
        self._follow(head.sequence_number)
        taker = self._takers.get(kind)
        chunks = [] if taker is None else taker(data)
        self.progress += len(chunks)
        return chunks

    def _follow(self, number: int | None) -> None:
        """Count the events, where the server numbers them.

        Raises:
            ModelError: some are missing, or came twice or in another order.
        """
        if number is None:
            return
        is_next = number in _FIRST_NUMBERS if self._sequence is None else number == self._sequence + 1
        if not is_next:
            raise broken(f"event {number} came after event {self._sequence}; the stream has a gap or is out of order")
        self._sequence = number

    def _begun(self, data: str) -> list[Chunk]:
        self._identify(read_event(data, ResponseEvent).response)
        return []

    def _identify(self, response: Response) -> None:
        if not self.response_id and response.id:
            self.progress += 1
        self.response_id = response.id or self.response_id
        self.model = response.model or self.model

    def _added(self, data: str) -> list[Chunk]:
        event = read_event(data, ItemEvent)
        self._begin(len(self._outputs) if event.output_index is None else event.output_index, event.read())
        return []

    def _begin(self, index: int, item: Item) -> Output:
        """Begin an output.

        Raises:
            ModelError: the stream is broken: an output before it is missing, it began before, or it is a call without name or id.
        """
        if index != len(self._outputs):
            raise broken(f"output {index} began where output {len(self._outputs)} should")
        output = Output(index, item.type, frozenset(filter(None, (item.id, item.call_id))))
        self._outputs.append(output)
        if item.type == "function_call":
            self.blocks.begin_call(index, item.call_id or item.id or "", item.name or "")
        self.progress += 1
        return output

    def _output(self, index: int | None, name: str | None) -> Output:
        """Return the output that an event belongs to: by its index, or by its id where a server gives none.

        Raises:
            ModelError: it never began, or was done.
        """
        if index is not None:
            found = self._outputs[index] if 0 <= index < len(self._outputs) else None
        else:
            named = (output for output in self._outputs if name in output.names)
            found = next(named, self._outputs[-1] if self._outputs and not name else None)
        if found is None:
            raise broken(f"something came for output {name if index is None else index!r:.80}, which never began")
        if found.is_done:
            raise broken(f"output {found.index} went on after it was done")
        return found

    def _piece(self, data: str, kind: str) -> tuple[PieceEvent, Output]:
        """Return an event within an output of that kind."""
        event = read_event(data, PieceEvent)
        output = self._output(event.output_index, event.item_id)
        if output.kind != kind:
            raise broken(f"output {output.index} is a {output.kind:.40}, and got a piece of a {kind}")
        return event, output

    def _part_added(self, data: str) -> list[Chunk]:
        event = read_event(data, PieceEvent)
        output = self._output(event.output_index, event.item_id)
        if output.kind == "message":
            output.begin_part(event.content_index or 0)
        return []

    def _text_piece(self, data: str) -> list[Chunk]:
        event, output = self._piece(data, "message")
        return self._text(output, event.content_index or 0, event.delta or "")

    def _refusal_piece(self, data: str) -> list[Chunk]:
        self._is_refusal = True
        return self._text_piece(data)

    def _text_whole(self, data: str) -> list[Chunk]:
        event, output = self._piece(data, "message")
        return self._whole_text(output, event.content_index or 0, event.text)

    def _refusal_whole(self, data: str) -> list[Chunk]:
        self._is_refusal = True
        event, output = self._piece(data, "message")
        return self._whole_text(output, event.content_index or 0, event.refusal)

    def _text(self, output: Output, part: int, piece: str) -> list[Chunk]:
        if not piece:
            return []
        key = (output.index, part)
        output.begin_part(part)
        if self._texts and key < next(reversed(self._texts)):
            raise broken(f"text of output {output.index} came after text of a later one")
        self._texts.setdefault(key, []).append(piece)
        return self.blocks.text(key, piece)

    def _whole_text(self, output: Output, part: int, text: str | None) -> list[Chunk]:
        """Take a text that is said as a whole: it must be what its pieces were, if any came."""
        held = self._texts.get((output.index, part))
        if text is None or held is None:
            return self._text(output, part, text or "")
        if clean_text("".join(held)) != clean_text(text):
            raise broken(f"the pieces of the text of output {output.index} are not the text")
        return []

    def _summary_piece(self, data: str) -> list[Chunk]:
        event, output = self._piece(data, "reasoning")
        return self._thinking((output.index, "summary", event.summary_index or 0), event.delta or "")

    def _reasoning_piece(self, data: str) -> list[Chunk]:
        event, output = self._piece(data, "reasoning")
        return self._thinking((output.index, "content", event.content_index or 0), event.delta or "")

    def _thinking(self, place: tuple[int, str, int], piece: str) -> list[Chunk]:
        """Add to the reasoning of an output; its parts are paragraphs."""
        if not piece:
            return []
        before, self._thought = self._thought, place
        if before is not None and before[0] > place[0]:
            raise broken(f"reasoning of output {place[0]} came after that of a later one")
        is_next_part = before is not None and before[0] == place[0] and before != place
        return self.blocks.thinking(place[0], f"{_PARAGRAPH}{piece}" if is_next_part else piece)

    def _arguments_piece(self, data: str) -> list[Chunk]:
        event, output = self._piece(data, "function_call")
        if event.delta:
            self.blocks.extend_call(output.index, event.delta)
            self.progress += 1
        return []

    def _arguments_whole(self, data: str) -> list[Chunk]:
        event, output = self._piece(data, "function_call")
        if event.arguments is not None:
            self.blocks.replace_call(output.index, event.arguments)
            self.progress += 1
        return []

    def _item_done(self, data: str) -> list[Chunk]:
        event = read_event(data, ItemEvent)
        item = event.read()
        return self._finish(self._output(event.output_index, item.id or item.call_id), item)

    def _finish(self, output: Output, item: Item) -> list[Chunk]:
        """Take an output as a whole, and compare it with what came of it in pieces."""
        if item.type != output.kind:
            raise broken(f"output {output.index} began as {output.kind:.40} and ended as {item.type:.40}")
        chunks: list[Chunk] = []
        if item.type == "function_call":
            self._finish_call(output, item)
        elif item.type == "message":
            chunks = self._finish_message(output, item)
        elif item.type == "reasoning":
            chunks = self._finish_reasoning(output, item)
        # A call that the limit of tokens cut off is never whole; the response that holds it ends as incomplete.
        output.is_done = item.status in {None, "completed"} or item.type != "function_call"
        self.progress += 1
        return chunks

    def _finish_call(self, output: Output, item: Item) -> None:
        if self.blocks.call_of(output.index) != (item.call_id or item.id, item.name):
            raise broken(f"call {output.index} ended under another name or id than it began")
        if item.arguments is not None:
            self.blocks.replace_call(output.index, item.arguments)

    def _finish_message(self, output: Output, item: Item) -> list[Chunk]:
        chunks: list[Chunk] = []
        for index, part in enumerate(item.content or ()):
            self._is_refusal = self._is_refusal or part.type == "refusal"
            chunks += self._whole_text(output, index, _text_of(part))
        if item.phase:
            chunks += self.blocks.thinking(("phase", output.index), "", signature=sealed_phase(item.phase))
        return chunks

    def _finish_reasoning(self, output: Output, item: Item) -> list[Chunk]:
        chunks: list[Chunk] = []
        if output.index not in self.blocks:
            for index, part in enumerate(item.summary or item.content or ()):
                chunks += self._thinking((output.index, "whole", index), part.text or "")
        self.blocks.thinking(output.index, "", signature=sealed_reasoning(item.raw))
        return chunks

    def _completed(self, data: str) -> list[Chunk]:
        """End the answer. Its status has the last word, for some servers give every end this name."""
        response = read_event(data, ResponseEvent).response
        if response.status == "incomplete":
            return self._cut(response)
        if response.status not in {None, "completed"}:
            raise _failure_of(response)
        chunks = self._compare(response)
        undone = next((output.index for output in self._outputs if not output.is_done), None)
        if undone is not None:
            raise broken(f"the response was completed, and its output {undone} was not")
        is_refusal = self._is_refusal and not self.blocks.has_calls
        self._end(response, "refusal" if is_refusal else "completed")
        return chunks

    def _compare(self, response: Response) -> list[Chunk]:
        """Compare the outputs with those of the response, where it lists them, and take those that were not done."""
        listed = response.items()
        if listed and len(listed) < len(self._outputs):
            raise broken(f"{len(self._outputs)} outputs came, and the response has {len(listed)}")
        chunks: list[Chunk] = []
        for index, item in enumerate(listed):
            output = self._outputs[index] if index < len(self._outputs) else self._begin(index, item)
            if not output.is_done:
                chunks += self._finish(output, item)
            elif item.type != output.kind:
                raise broken(f"output {index} is a {output.kind:.40}, and the response has a {item.type:.40}")
            elif item.type == "function_call":
                self._finish_call(output, item)
        return chunks

    def _incomplete(self, data: str) -> list[Chunk]:
        return self._cut(read_event(data, ResponseEvent).response)

    def _cut(self, response: Response) -> list[Chunk]:
        """End an answer that was cut off; what came of it is as it is."""
        details = response.incomplete_details
        self._end(response, "incomplete" if details is None or not details.reason else details.reason)
        return []

    def _end(self, response: Response, word: str) -> None:
        self._identify(response)
        self.stop = stop_reason("responses", word, has_calls=self.blocks.has_calls)
        if response.usage is not None:
            self.tokens = tokens_of(response.usage)
        self.is_complete = self.is_closed = True
        self.progress += 1

    def _failed(self, data: str) -> list[Chunk]:
        raise _failure_of(read_event(data, ResponseEvent).response)


def _text_of(part: Part) -> str | None:
    return part.refusal if part.type == "refusal" else part.text


def _failure_of(response: Response) -> InBandError:
    if response.error is not None:
        return InBandError(read_error({"error": response.error}))
    return InBandError(WireError(f"the response ended as {response.status or 'failed'!r:.40}"))
