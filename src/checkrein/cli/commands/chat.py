"""`chat`: hold a conversation with an agent, at a terminal or through pipes."""

import contextlib
import sys
from pathlib import Path

import msgspec

from checkrein.agent.agent import Agent, AgentOptions
from checkrein.cli.chat_lines import Lines
from checkrein.cli.chat_person import Person
from checkrein.cli.chat_script import ScriptPlayer, read_script
from checkrein.cli.chat_tools import tools_with
from checkrein.cli.exits import Exit, Usage
from checkrein.cli.models import ModelChoice, Models
from checkrein.cli.screen import Screen
from checkrein.clock import SystemClock
from checkrein.loop.compactor import CompactingModel
from checkrein.loop.options import Retry
from checkrein.ports.clock import Clock
from checkrein.ports.model import Model

__all__ = ["ChatOptions", "chat"]

_ATTEMPTS = 3


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for.

    Attributes:
        model: the model's name and settings; without a name none.
        script: the file of a scripted conversation; None for none.
        json_lines: print the events as JSON lines.
    """

    model: ModelChoice
    script: Path | None
    json_lines: bool


async def chat(options: ChatOptions) -> Exit:
    """Hold a conversation until the person leaves or the input ends.

    Raises:
        Usage: no model and no script was named, or both, or what was named cannot be used.
        CheckreinError: the provider refused.
    """
    clock = SystemClock()
    screen = Screen(json_lines=options.json_lines)
    async with contextlib.aclosing(Models(options.model)) as models:
        return await _talk(options, models, screen, clock)


async def _talk(options: ChatOptions, models: Models, screen: Screen, clock: Clock) -> Exit:
    model = _model(options, models, clock)
    agent = Agent(
        model=CompactingModel(model), tools=tools_with(clock), options=AgentOptions(clock=clock, retry=Retry(_ATTEMPTS))
    )
    if screen.is_live and sys.stdin is not None and sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]  None when it was closed
        return await Person(agent, screen, clock).talk(f"checkrein chat · {options.model.name or options.script}")
    return await Lines(agent, screen, clock).talk()


def _model(options: ChatOptions, models: Models, clock: Clock) -> Model:
    choice = options.model
    if options.script is not None and choice == ModelChoice():
        return ScriptPlayer(read_script(options.script), clock)
    if choice.name and options.script is None:
        return models.chosen()
    msg = "name either a model with --model or a scripted conversation with --script, such as examples/chat/tour.toml"
    raise Usage(msg)
