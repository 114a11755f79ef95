"""Models by name, from the installed entry points of the group `checkrein.models`.

An entry point is a function that takes what follows the first `/` of the name (`""` when nothing does) and returns a model. Nothing is ever imported by another name.
"""

from typing import Final, cast

from checkrein.cli.exits import Usage
from checkrein.cli.resolver import installed
from checkrein.errors import CheckreinError
from checkrein.ports.model import Model

__all__ = ["GROUP", "model_named"]

GROUP: Final = "checkrein.models"
_HINT: Final = f"providers come as extras, packages with an entry point of the group {GROUP}; --script FILE needs none"


def model_named(name: str) -> Model:
    """Return the model of that name.

    Raises:
        Usage: none is installed under it, or it makes no model.
        TaskError: it cannot be imported.
        CheckreinError: the provider's own, such as a `MissingExtra`.
    """
    provider, _, variant = name.partition("/")
    try:
        make = installed(GROUP, provider, "model", source="--model")
    except LookupError as error:
        msg = f"--model {name}: {error}; {_HINT}"
        raise Usage(msg) from error
    if not callable(make):
        msg = f"--model {name}: its entry point is {type(make).__name__}, which cannot be called"
        raise Usage(msg)
    try:
        model: object = make(variant)
    except CheckreinError:
        raise
    except Exception as error:
        msg = f"--model {name}: it cannot be made: {type(error).__name__}: {error}"
        raise Usage(msg) from error
    if not callable(getattr(model, "stream", None)):
        msg = f"--model {name}: its entry point made {type(model).__name__}, which has no `stream`"
        raise Usage(msg)
    return cast("Model", model)
