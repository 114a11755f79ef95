"""The table of failures: each has one row, says whether it may pass, and shows no secret."""

import pytest

from checkrein.errors import TransientModelError
from checkrein.loop.events import ErrorCode
from checkrein.providers.failures import BY_STATUS, BY_WORD, Row, Rows, WireError, broken, failure, read_error, row_of
from checkrein.providers.retry_after import retry_after

NOW = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC


@pytest.mark.parametrize(
    ("error", "row"),
    [
        (WireError(status=429, words=("insufficient_quota",)), Rows.QUOTA),
        (WireError(status=429, message="You exceeded your current quota, please check your plan"), Rows.QUOTA),
        (WireError(status=429, words=("rate_limit_exceeded",)), Rows.RATE_LIMIT),
        (WireError(status=429, message="Rate limit: too many input tokens per minute"), Rows.RATE_LIMIT),
        (WireError(status=400, message="Your credit balance is too low"), Rows.QUOTA),
        (WireError(status=402), Rows.QUOTA),
        (WireError(status=400, words=("invalid_request_error",), message="prompt is too long: 9 > 8"), Rows.CONTEXT),
        (WireError(status=400, message="This model's maximum context length is 8192 tokens"), Rows.CONTEXT),
        (WireError(status=400, words=("exceed_context_size_error",)), Rows.CONTEXT),
        (WireError(status=400, message="the request exceeds the available context size"), Rows.CONTEXT),
        (WireError(status=413), Rows.CONTEXT),
        (WireError(status=400, message="temperature is a number"), Rows.REQUEST),
        (WireError(status=422), Rows.REQUEST),
        (WireError(status=418), Rows.REQUEST),
        (WireError(status=401), Rows.AUTH),
        (WireError(status=403, words=("permission_error",)), Rows.AUTH),
        (WireError(status=404, words=("not_found_error",)), Rows.NOT_FOUND),
        (WireError(status=408), Rows.UNAVAILABLE),
        (WireError(status=409), Rows.UNAVAILABLE),
        (WireError(status=500, message="maximum context length of our patience"), Rows.UNAVAILABLE),
        (WireError(status=502), Rows.UNAVAILABLE),
        (WireError(status=503), Rows.OVERLOADED),
        (WireError(status=529), Rows.OVERLOADED),
        (WireError(status=599), Rows.UNAVAILABLE),
        (WireError(status=500, words=("Overloaded_Error",)), Rows.OVERLOADED),
        (WireError(words=("overloaded_error",)), Rows.OVERLOADED),
        (WireError(words=("invalid_request_error",), message="prompt is too long"), Rows.CONTEXT),
        (WireError(words=("invalid_request_error",), message="no"), Rows.REQUEST),
        (WireError(message="what is this"), Rows.STREAM),
    ],
)
def test_a_failure_has_its_row(error: WireError, row: Row) -> None:
    assert row_of(error) == row


def test_every_row_has_a_code_that_a_run_may_end_with() -> None:
    codes = set(ErrorCode.__args__)
    assert {row.code for row in (*BY_STATUS.values(), *BY_WORD.values(), Rows.STREAM)} <= codes


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"error": {"message": "m", "type": "t", "code": "c"}}, WireError("m", ("c", "t"))),
        ({"message": "m", "type": "t"}, WireError("m", ("t",))),
        ({"error": "m"}, WireError("m")),
        ({"error": {"message": "m", "code": 502}}, WireError("m", (), 502)),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "m"}},
            WireError("m", ("overloaded_error",)),
        ),
        ({"detail": "m"}, WireError("m")),
        ("m", WireError("m")),
        (None, WireError()),
        ([1], WireError("[1]")),
        ({"error": {"message": None, "code": 7}}, WireError()),
    ],
)
def test_an_error_is_read_in_every_form(data: object, said: WireError) -> None:
    assert read_error(data) == said


def test_a_status_counts_more_than_a_number_in_the_body() -> None:
    assert read_error({"error": {"code": 400}}, status=503).status == 503


def test_only_what_may_pass_says_when() -> None:
    headers = {"Retry-After": "3"}
    passing = failure(WireError("busy", (), 429, headers), now=NOW)
    assert isinstance(passing, TransientModelError)
    assert passing.retry_after == 3.0
    lasting = failure(WireError("no", (), 401, headers), now=NOW)
    assert (lasting.is_transient, lasting.retry_after) == (False, None)


def test_no_secret_and_no_escape_sequence_leaves_in_a_text() -> None:
    key = "very-secret"
    said = f"key {key} or sk-proj-abcdef123456 or Bearer abc.def\x1b[31m" + "x" * 10_000
    for error in (failure(WireError(said, (), 401), now=NOW, secrets=(key,)), broken(said, secrets=(key, ""))):
        text = str(error)
        assert key not in text
        assert "abcdef" not in text
        assert "abc.def" not in text
        assert "\x1b" not in text
        assert len(text) < 700


def test_a_transport_that_fails_before_the_answer_is_no_broken_stream() -> None:
    assert broken("refused", has_begun=False).code == "MODEL_UNAVAILABLE"
    assert broken("reset").code == "MODEL_STREAM_FAILED"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "20"}, 20.0),
        ({"Retry-After": " 1.5 "}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT"}, 30.0),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after-ms": "250", "retry-after": "20"}, 0.25),
        ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0"}, 360.0),
        ({"x-ratelimit-reset-tokens": "1h2m3.5s"}, 3723.5),
        ({"x-ratelimit-reset-tokens": "250ms"}, 0.25),
        (
            {
                "x-ratelimit-reset-requests": "1h",
                "x-ratelimit-remaining-requests": "59",
                "x-ratelimit-reset-tokens": "2s",
                "x-ratelimit-remaining-tokens": "0",
            },
            2.0,
        ),
        ({"anthropic-ratelimit-requests-reset": "2027-01-15T08:00:12Z"}, 12.0),
        (
            {
                "anthropic-ratelimit-requests-reset": "2027-01-15T08:00:12Z",
                "anthropic-ratelimit-requests-remaining": "4",
            },
            None,
        ),
        ({"x-ratelimit-reset": "1800000010000"}, 10.0),
        ({"x-ratelimit-reset": "1800000010"}, 10.0),
        ({"ratelimit-reset": "8"}, 8.0),
        ({"x-ratelimit-reset-tokens": "1s", "retry-after": "5"}, 5.0),
    ],
)
def test_a_wait_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=NOW) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Rate limit reached. Please try again in 1.2s. See more", 1.2),
        ("Please try again in 250ms.", 0.25),
        ("retry after 2 minutes", 120.0),
        ("try again in a while", None),
    ],
)
def test_a_wait_may_be_said_in_words(message: str, seconds: float | None) -> None:
    assert retry_after({}, now=NOW, message=message) == pytest.approx(seconds)
    assert retry_after({"retry-after": "9"}, now=NOW, message=message) == 9.0
