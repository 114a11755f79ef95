"""The one table of what goes wrong with a provider: which code it has, and whether asking again may help.

Pure. A failure is looked up by the words that the provider uses for it (`insufficient_quota`, `overloaded_error`), then by what its text says of a context that is too
long, then by the HTTP status; what no row knows counts as a broken stream, which may pass. The invariant: every failure has exactly one row, and no text that leaves here
holds a secret.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, cast

import msgspec

from checkrein.errors import ModelError, TransientModelError
from checkrein.providers.retry_after import retry_after
from checkrein.values import clean_text, shorten, visible_text

__all__ = ["BY_STATUS", "BY_WORD", "Row", "Rows", "WireError", "broken", "failure", "read_error", "redacted", "row_of"]

_MESSAGE_CHARACTERS: Final = 500
_KEY_LIKE: Final = re.compile(r"\b(?:sk|rk|pk|gsk|xai|key)-[\w*.-]{6,}|\bBearer\s+\S+", re.IGNORECASE)


class Row(msgspec.Struct, frozen=True):
    """One row of the table.

    Attributes:
        code: the error's code.
        is_transient: making the same request again may help.
        meaning: for people, and for the documentation.
    """

    code: str
    is_transient: bool
    meaning: str


class Rows:
    """The rows, each once."""

    AUTH: Final = Row("MODEL_AUTH", is_transient=False, meaning="the key is missing, wrong, or may not do this")
    NOT_FOUND: Final = Row("MODEL_NOT_FOUND", is_transient=False, meaning="no such model or address")
    REQUEST: Final = Row("MODEL_REQUEST", is_transient=False, meaning="the provider refuses the request as it is")
    CONTEXT: Final = Row("MODEL_CONTEXT", is_transient=False, meaning="the request is longer than the model can read")
    QUOTA: Final = Row("MODEL_QUOTA", is_transient=False, meaning="the account's money or quota is used up")
    RATE_LIMIT: Final = Row(
        "MODEL_RATE_LIMIT", is_transient=True, meaning="too many requests or tokens in a short time"
    )
    OVERLOADED: Final = Row("MODEL_OVERLOADED", is_transient=True, meaning="the provider has more work than it can do")
    UNAVAILABLE: Final = Row("MODEL_UNAVAILABLE", is_transient=True, meaning="the provider failed or cannot be reached")
    STREAM: Final = Row("MODEL_STREAM_FAILED", is_transient=True, meaning="the stream broke, stalled or is malformed")


BY_STATUS: Final[Mapping[int, Row]] = {
    400: Rows.REQUEST,
    401: Rows.AUTH,
    402: Rows.QUOTA,
    403: Rows.AUTH,
    404: Rows.NOT_FOUND,
    405: Rows.NOT_FOUND,
    408: Rows.UNAVAILABLE,
    409: Rows.UNAVAILABLE,
    410: Rows.NOT_FOUND,
    413: Rows.CONTEXT,
    421: Rows.UNAVAILABLE,
    422: Rows.REQUEST,
    424: Rows.UNAVAILABLE,
    425: Rows.UNAVAILABLE,
    429: Rows.RATE_LIMIT,
    498: Rows.OVERLOADED,
    503: Rows.OVERLOADED,
    529: Rows.OVERLOADED,
}
"""HTTP statuses by row; every other 4xx is `MODEL_REQUEST`, every other 5xx `MODEL_UNAVAILABLE`."""

BY_WORD: Final[Mapping[str, Row]] = {
    "api_error": Rows.UNAVAILABLE,
    "authentication_error": Rows.AUTH,
    "billing_error": Rows.QUOTA,
    "billing_hard_limit_reached": Rows.QUOTA,
    "billing_not_active": Rows.QUOTA,
    "bio_policy": Rows.REQUEST,
    "context_length_exceeded": Rows.CONTEXT,
    "context_window_exceeded": Rows.CONTEXT,
    "contract_spend_limit_reached": Rows.QUOTA,
    "cyber_policy_violation": Rows.REQUEST,
    "data_residency_mismatch": Rows.REQUEST,
    "empty_image_file": Rows.REQUEST,
    "enforced_spend_limit_reached": Rows.QUOTA,
    "exceed_context_size_error": Rows.CONTEXT,
    "failed_to_download_image": Rows.REQUEST,
    "image_content_policy_violation": Rows.REQUEST,
    "image_file_not_found": Rows.REQUEST,
    "image_file_too_large": Rows.REQUEST,
    "image_parse_error": Rows.REQUEST,
    "image_too_large": Rows.REQUEST,
    "image_too_small": Rows.REQUEST,
    "insufficient_quota": Rows.QUOTA,
    "internal_error": Rows.UNAVAILABLE,
    "internal_server_error": Rows.UNAVAILABLE,
    "invalid_api_key": Rows.AUTH,
    "linked_organization_spend_limit_reached": Rows.QUOTA,
    "misalignment_policy_violation": Rows.REQUEST,
    "model_not_found": Rows.NOT_FOUND,
    "not_found_error": Rows.NOT_FOUND,
    "overloaded": Rows.OVERLOADED,
    "overloaded_error": Rows.OVERLOADED,
    "permission_error": Rows.AUTH,
    "rate_limit_error": Rows.RATE_LIMIT,
    "rate_limit_exceeded": Rows.RATE_LIMIT,
    "request_too_large": Rows.CONTEXT,
    "server_error": Rows.UNAVAILABLE,
    "server_overloaded": Rows.OVERLOADED,
    "service_unavailable": Rows.OVERLOADED,
    "slow_down": Rows.RATE_LIMIT,
    "string_above_max_length": Rows.CONTEXT,
    "timeout_error": Rows.UNAVAILABLE,
    "tokens_exceeded": Rows.CONTEXT,
    "unavailable_error": Rows.OVERLOADED,
    "unsupported_image_media_type": Rows.REQUEST,
    "vector_store_timeout": Rows.UNAVAILABLE,
}
"""The providers' own `code` and `type`, in lower case; a word decides before the status does."""
_CONTEXT_TEXT: Final = re.compile(
    r"maximum context length|context (?:length|window|size)[^.]{0,60}(?:exceed|limit)|exceeds?[^.]{0,60}context (?:length|window|size)"
    r"|prompt is too long|input is too long|too many (?:input )?tokens|reduce the length of the (?:messages|prompt|input)"
    r"|input token count[^.]{0,40}exceeds",
    re.IGNORECASE,
)
_QUOTA_TEXT: Final = re.compile(
    r"exceeded your current quota|credit balance is too low|insufficient (?:credits|balance|funds)", re.IGNORECASE
)
_SERVER: Final = 500
_CLIENT: Final = 400
_AFTER: Final = 600


class WireError(msgspec.Struct, frozen=True):
    """What a provider says of a failure, whichever its wire.

    Attributes:
        message: its text.
        words: its `code` and `type`, as they are, and before them the cause within its `details`, which says more.
        status: the HTTP status, or the number that stands in its place within a stream; None when there is none.
        headers: of the response.
    """

    message: str = ""
    words: tuple[str, ...] = ()
    status: int | None = None
    headers: Mapping[str, str] = {}


def read_error(data: object, *, status: int | None = None, headers: Mapping[str, str] | None = None) -> WireError:
    """Return what the decoded JSON of an error says: `{"error": {…}}`, `{"error": "…"}`, or the inner object itself; never raises.

    A number that stands for a code within a stream (OpenRouter, vLLM) is its status.
    """
    inner: object = data
    if isinstance(data, Mapping):
        table = cast("Mapping[str, object]", data)
        inner = table.get("error") or table
    if not isinstance(inner, Mapping):
        return WireError(message=str(inner or ""), status=status, headers=headers or {})
    fields = cast("Mapping[str, object]", inner)
    details = fields.get("details")
    cause = cast("Mapping[str, object]", details).get("error_code") if isinstance(details, Mapping) else None
    given = [cause, fields.get("code"), fields.get("type"), fields.get("status")]
    number = next((item for item in given if isinstance(item, int) and _CLIENT <= item < _AFTER), None)
    return WireError(
        message=str(fields.get("message") or fields.get("detail") or ""),
        words=tuple(item for item in given if isinstance(item, str)),
        status=number if status is None else status,
        headers=headers or {},
    )


def row_of(error: WireError) -> Row:
    """Return the row of a failure."""
    words = [word.lower() for word in error.words]
    found = next((BY_WORD[word] for word in words if word in BY_WORD), None)
    is_refusal = error.status is None or (_CLIENT <= error.status < _SERVER)
    if is_refusal and found in {None, Rows.REQUEST, Rows.RATE_LIMIT} and _QUOTA_TEXT.search(error.message):
        return Rows.QUOTA
    if is_refusal and found is None and error.status not in {401, 403, 429} and _CONTEXT_TEXT.search(error.message):
        return Rows.CONTEXT
    return found or _by_status(error.status, words)


def _by_status(status: int | None, words: list[str]) -> Row:
    if status is None:
        return Rows.REQUEST if any(word.startswith("invalid_") for word in words) else Rows.STREAM
    if status in BY_STATUS:
        return BY_STATUS[status]
    if _CLIENT <= status < _SERVER:
        return Rows.REQUEST
    return Rows.UNAVAILABLE if _SERVER <= status < _AFTER else Rows.STREAM


def failure(error: WireError, *, now: float, secrets: Iterable[str] = ()) -> ModelError:
    """Return a provider's failure as the error to raise.

    Args:
        error: what the provider said.
        now: seconds since 1970 (UTC), for waits that are given as a time.
        secrets: what must not show in the text.
    """
    row = row_of(error)
    said = redacted(error.message, secrets)
    status = "" if error.status is None else f" (status {error.status})"
    text = f"{row.meaning}{status}: {said}" if said else f"{row.meaning}{status}"
    if not row.is_transient:
        return ModelError(text, code=row.code)
    return TransientModelError(
        text, code=row.code, retry_after=retry_after(error.headers, now=now, message=error.message)
    )


def broken(reason: str, *, has_begun: bool = True, secrets: Iterable[str] = ()) -> TransientModelError:
    """Return the error for a transport that failed or a stream that is no whole response.

    Args:
        reason: what happened.
        has_begun: whether the provider had begun to answer; before that it counts as unreachable.
        secrets: what must not show in the text.
    """
    row = Rows.STREAM if has_begun else Rows.UNAVAILABLE
    return TransientModelError(f"{row.meaning}: {redacted(reason, secrets)}", code=row.code)


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a foreign text for people: secrets and what looks like one replaced, escapes made visible, at most 500 characters."""
    shown = clean_text(text)
    for secret in secrets:
        if secret:
            shown = shown.replace(secret, "***")
    return shorten(visible_text(_KEY_LIKE.sub("***", shown), keep_newlines=False), _MESSAGE_CHARACTERS)
