"""What can be set for a model: one typed value for every wire, from `-c key=value`, from code, and for a single request.

The invariant: a key that is not known is refused with those that are, and no key of an account is ever among the settings.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, cast

import msgspec

from checkrein.errors import InvalidJson, ModelError, TaskError
from checkrein.values import JsonObject, clean_text, parse_json

__all__ = ["ProviderSettings", "check_address", "read_settings", "settings_of_request"]

_SOURCE: Final = "-c"


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a model; a wire leaves out what it has no word for.

    Attributes:
        base_url: the address of the API, `""` for the provider's own.
        api: which API of OpenAI is spoken; `""` for the provider's usual one.
        timeout: seconds without progress after which an attempt has failed; keep-alives are no progress.
        max_output_tokens: tokens of one response, reasoning included; None for what the API allows.
        context_window: tokens that fit into one request and its response, to which conversations are kept; None for what is known of the model.
        temperature: of sampling; None for the API's own.
        top_p: of sampling; None for the API's own.
        seed: of sampling, where the API has one.
        reasoning_effort: how much a model thinks, in the API's own words (`low`, `high`, …); `""` for the API's own.
        reasoning_tokens: tokens a model may think, where the API takes a number.
        reasoning_back: which reasoning a chat API gets back: that since the last user message (`round`), `all`, or `none`.
        cache: whether the API is asked to cache the beginning of the conversation, where that has to be asked for.
        parallel_tool_calls: whether one response may hold several calls; None for the API's own.
        tool_choice: whether the model may, must not or must call a tool.
        system: what the model is told before the conversation.
        response_schema: JSON Schema that the text of a response must match.
        response_name: the name of that schema.
        extra: further fields of the request's body, passed on as they are.
    """

    base_url: str = ""
    api: Literal["", "chat", "responses"] = ""
    timeout: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 300.0
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    context_window: Annotated[int, msgspec.Meta(ge=1)] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    seed: int | None = None
    reasoning_effort: str = ""
    reasoning_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    reasoning_back: Literal["round", "all", "none"] = "round"
    cache: bool = True
    parallel_tool_calls: bool | None = None
    tool_choice: Literal["auto", "none", "required"] = "auto"
    system: str = ""
    response_schema: JsonObject | None = None
    response_name: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{1,64}$")] = "answer"
    extra: JsonObject = JsonObject()


def read_settings(given: Mapping[str, object], *, source: str = _SOURCE) -> ProviderSettings:
    """Return settings; texts are read as what the setting needs, as from a command line.

    Raises:
        TaskError: a key is unknown, or a value is none for that setting; names the key, and what there is.
    """
    known = ProviderSettings.__struct_fields__
    strange = next((key for key in given if key not in known), None)
    if strange is not None:
        raise TaskError(source, clean_text(strange), "is no setting of a model", f"the settings are {', '.join(known)}")
    settings = ProviderSettings()
    for key, value in given.items():
        try:
            settings = _with(settings, {key: value})
        except (msgspec.ValidationError, InvalidJson) as error:
            raise TaskError(source, key, str(error), "correct the value") from error
    if settings.base_url:
        check_address(settings.base_url, source)
    return settings


def settings_of_request(settings: ProviderSettings, request: Mapping[str, object]) -> ProviderSettings:
    """Return the settings of one request: the model's own, but for what the request sets itself.

    Raises:
        ModelError: `MODEL_REQUEST`: the request sets what cannot be set, or not for one request.
    """
    if not request:
        return settings
    fixed = {"base_url", "api", "context_window"} & set(request)
    if fixed:
        raise ModelError(f"{', '.join(sorted(fixed))} cannot be set for one request", code="MODEL_REQUEST")
    try:
        return _with(settings, request)
    except (msgspec.ValidationError, InvalidJson) as error:
        raise ModelError(f"the request's settings are wrong: {error}", code="MODEL_REQUEST") from error


def _with(settings: ProviderSettings, changes: Mapping[str, object]) -> ProviderSettings:
    data: dict[str, object] = {name: getattr(settings, name) for name in settings.__struct_fields__}
    for key, value in changes.items():
        data[key] = clean_text(value) if isinstance(value, str) else value
    return msgspec.convert(data, ProviderSettings, strict=False, dec_hook=_object)


def _object(kind: type[object], value: object) -> object:
    """Make a `JsonObject` of a mapping, or of the JSON that a command line gives."""
    if kind is not JsonObject:
        msg = f"{kind.__name__} cannot be set"
        raise msgspec.ValidationError(msg)
    plain = parse_json(value) if isinstance(value, str) else value
    if not isinstance(plain, Mapping):
        msg = "it is no JSON object"
        raise msgspec.ValidationError(msg)
    return JsonObject(cast("Mapping[str, object]", plain))


def check_address(url: str, source: str) -> None:
    """Refuse what is no address of a server, or holds a secret.

    Raises:
        TaskError: it is none, or names a user; the address itself is not shown then.
    """
    if not url.lower().startswith(("http://", "https://")):
        raise TaskError(source, "base_url", "is no address", "write it as http://… or https://…")
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise TaskError(source, "base_url", "names a user", "leave that out: a key comes from the environment")
