"""A tagged Struct says its tag twice: to the codec and, as a class attribute, to readers. The two agree."""

import importlib
from collections.abc import Iterator

import msgspec

from tests.architecture.tree import package_modules


def test_every_tag_is_also_an_attribute_of_its_class() -> None:
    tagged = {struct for struct in _structs(msgspec.Struct) if struct.__struct_config__.tag is not None}
    wrong = [
        f"{struct.__module__}.{struct.__qualname__}"
        for struct in tagged
        if vars(struct).get(str(struct.__struct_config__.tag_field)) != struct.__struct_config__.tag
    ]
    assert tagged
    assert wrong == []


def test_every_public_struct_is_frozen() -> None:
    public = [item for item in _structs(msgspec.Struct) if not item.__name__.startswith("_")]
    loose = [f"{item.__module__}.{item.__qualname__}" for item in public if not _is_frozen(item)]
    assert public
    assert loose == []


def _structs(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for module in package_modules():
        importlib.import_module(module.name)
    for struct in base.__subclasses__():
        if struct.__module__.partition(".")[0] == "checkrein":
            yield struct
        yield from _structs(struct)


def _is_frozen(struct: type[msgspec.Struct]) -> bool:
    return struct.__struct_config__.frozen or not struct.__struct_fields__
