"""Models for the tests of `chat`, installed as a provider's package would be: importable, with entry points of the group `checkrein.models`."""

from pathlib import Path

from tests.unit.cli.folders import Shell

__all__ = ["install_models"]

SOURCE = '''\
import asyncio
from functools import partial
from pathlib import Path

from checkrein import ToolCall
from checkrein.errors import MissingExtra
from checkrein.ports.model import TextDelta
from checkrein.testing import ScriptedModel, reply

HERE = Path(__file__).parent


def said_by(messages):
    return " | ".join(message.content for message in messages if message.role == "user")


async def play_echo(variant, request, signal):
    """Say what everybody said, after the variant."""
    yield reply(f"{variant}: {said_by(request.messages)}")


async def play_held(request, signal):
    """Begin to speak, wait for a file named like the request, then call `clock`, or at the second request say what everybody said."""
    yield TextDelta(request.id, "Thinking about it. ")
    while not (HERE / request.id).exists():
        await asyncio.sleep(0.01)
    if request.id == "request-001":
        yield reply("Thinking about it. ", ToolCall("c1", "clock", {}))
    else:
        yield TextDelta(request.id, said_by(request.messages))
        yield reply("Thinking about it. ", said_by(request.messages))


async def play_deaf(request, signal):
    """Never end, and do not heed being cancelled."""
    yield TextDelta(request.id, "I am deaf.\\n")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass


async def play_said(request, signal):
    """Say what is in a file."""
    yield reply((HERE / "said").read_text(encoding="utf-8"))


def echo(variant):
    return ScriptedModel([partial(play_echo, variant)] * 100)


def held(variant):
    return ScriptedModel([play_held] * 100)


def broken(variant):
    raise ValueError(f"no key for {variant}")


def extra(variant):
    raise MissingExtra("provider", "model", "models")


def deaf(variant):
    return ScriptedModel([play_deaf] * 100)


def said(variant):
    return ScriptedModel([play_said] * 100)


def nothing(variant):
    return 3


number = 3
'''

ENTRIES = """\
[checkrein.models]
broken = scripted_models:broken
deaf = scripted_models:deaf
echo = scripted_models:echo
extra = scripted_models:extra
held = scripted_models:held
missing = module_that_is_not_there:model
nothing = scripted_models:nothing
number = scripted_models:number
said = scripted_models:said
"""


def install_models(shell: Shell) -> Path:
    """Make the models known to commands of `shell` that run in processes of their own, and return the folder of their module."""
    site = shell.home / "site"
    info = site / "scripted_models-1.dist-info"
    info.mkdir(parents=True)
    (site / "scripted_models.py").write_text(SOURCE, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: scripted-models\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRIES, encoding="utf-8")
    shell.env["PYTHONPATH"] = str(site)
    return site
