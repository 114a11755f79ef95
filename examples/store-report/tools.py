"""The report's own tool: a bar chart as PNG.

The picture depends on the arguments alone and replaces the whole file at once, so drawing it twice leaves the same file: the tool is idempotent, and after
a crash it is simply called again.
"""

# pyright: reportUnknownMemberType=false
# The drawing library declares the types of its keyword options nowhere; all that comes back from it here is typed.

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from checkrein import ToolContext, tool
from checkrein.ports.tool import ToolOutput

FOLDER = "charts"
INCHES = (8.0, 4.5)
DOTS_PER_INCH = 200
INK, QUIET, GRID = "#1f2933", "#616e7c", "#e4e7eb"
STRONG, PALE = "#2f5d8a", "#b8c4d0"


class Bar(BaseModel):
    """One bar."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    label: Annotated[str, Field(max_length=40, description="names the bar on the axis")]
    value: Annotated[float, Field(ge=0, description="its length")]
    text: Annotated[str, Field(max_length=40, description="stands at its end")]
    strong: Annotated[bool, Field(description="false: in a pale colour, for what is not compared")] = True


class Chart(BaseModel):
    """What a chart shows."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Annotated[str, Field(pattern="^[a-z0-9-]{1,60}$", description="the file is charts/<name>.png")]
    title: Annotated[str, Field(max_length=80, description="what the picture says, in a line")]
    subtitle: Annotated[str, Field(max_length=110, description="what is measured, and in which unit")]
    direction: Annotated[
        Literal["up", "right"], Field(description="columns that grow up, or bars that grow to the right")
    ]
    labels_axis: Annotated[str, Field(max_length=40, description="what the labels are")]
    values_axis: Annotated[str, Field(max_length=40, description="what the values are, with their unit")]
    bars: Annotated[list[Bar], Field(min_length=1, max_length=30, description="in the order they are read")]


@tool(idempotent=True, timeout_seconds=60)
def draw_chart(chart: Chart, context: ToolContext) -> ToolOutput:
    """Draw a bar chart and save it as a PNG of 1600 by 900 pixels in the run's folder.

    Args:
        chart: what to draw.
        context: the run's folder.

    Returns:
        The path of the picture and its size in bytes.
    """
    path = f"{FOLDER}/{chart.name}.png"
    size = _replace(context.folder() / path, _png(_drawn(chart)))
    return ToolOutput({"path": path, "bytes": size}, artifacts=(path,))


def _drawn(chart: Chart) -> Figure:
    # Without pyplot: no window system, and no state that threads share.
    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, facecolor="white")
    left = 0.09 if chart.direction == "up" else 0.075 + 0.0085 * max(len(bar.label) for bar in chart.bars)
    axes = figure.add_axes((left, 0.14, 0.96 - left, 0.66))
    if chart.direction == "up":
        _draw_columns(axes, chart.bars)
        axes.set_xlabel(chart.labels_axis)
        axes.set_ylabel(chart.values_axis)
    else:
        _draw_rows(axes, chart.bars)
        axes.set_xlabel(chart.values_axis)
        axes.set_ylabel(chart.labels_axis)
    _dress(axes)
    figure.text(0.03, 0.93, chart.title, size=15, weight="bold", color=INK, va="center", parse_math=False)
    figure.text(0.03, 0.865, chart.subtitle, size=10, color=QUIET, va="center", parse_math=False)
    return figure


def _draw_columns(axes: Axes, bars: Sequence[Bar]) -> None:
    places = range(len(bars))
    axes.bar(places, [bar.value for bar in bars], width=0.62, color=_colours(bars))
    axes.set_xticks(places, [bar.label for bar in bars])
    axes.set_ylim(0, _room(bars))
    axes.grid(visible=True, axis="y", color=GRID)
    for place, bar in zip(places, bars, strict=True):
        _write(axes, bar.text, (place, bar.value), offset=(0, 5))


def _draw_rows(axes: Axes, bars: Sequence[Bar]) -> None:
    places = range(len(bars))
    axes.barh(places, [bar.value for bar in bars], height=0.7, color=_colours(bars))
    axes.set_yticks(places, [bar.label for bar in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, _room(bars))
    axes.grid(visible=True, axis="x", color=GRID)
    for place, bar in zip(places, bars, strict=True):
        _write(axes, bar.text, (bar.value, place), offset=(5, 0))


def _write(axes: Axes, text: str, place: tuple[float, float], *, offset: tuple[int, int]) -> None:
    aligned = ("center", "bottom") if offset[0] == 0 else ("left", "center")
    note = axes.annotate(text, place, xytext=offset, textcoords="offset points", ha=aligned[0], va=aligned[1])
    # White behind the text, or the grid would run through its figures.
    note.set(size=9.5, color=INK, parse_math=False, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})


def _colours(bars: Sequence[Bar]) -> list[str]:
    return [STRONG if bar.strong else PALE for bar in bars]


def _room(bars: Sequence[Bar]) -> float:
    """Return where the axis of values ends: there must be room for the text at the longest bar, and an axis of no length cannot be drawn."""
    return max(bar.value for bar in bars) * 1.22 or 1.0


def _dress(axes: Axes) -> None:
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=10, labelcolor=INK, pad=6)
    axes.xaxis.label.set(size=10, color=QUIET)
    axes.yaxis.label.set(size=10, color=QUIET)
    for text in (axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels(), *axes.get_yticklabels()):
        text.set_parse_math(False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _png(figure: Figure) -> bytes:
    """Return the picture; the name and version of the drawing library are left out, so that equal arguments give equal bytes."""
    picture = io.BytesIO()
    FigureCanvasAgg(figure).print_png(picture, metadata={"Software": None})
    return picture.getvalue()


def _replace(file: Path, content: bytes) -> int:
    """Write a whole file and return its size: there is the old one or the new one, never a part."""
    file.parent.mkdir(exist_ok=True)
    part = file.with_name(f".{file.name}.partial")
    part.write_bytes(content)
    part.replace(file)
    return len(content)
