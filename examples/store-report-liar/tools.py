"""A tool that claims success, as models, jobs and scripts do: first over empty files, then, told what is wrong, over invented figures.

Its answer is even right: 24 countries, 2,328.60 dollars. What it wrote is not, and only that is checked.
"""

import io
import json
from pathlib import Path

from PIL import Image, ImageDraw

from checkrein import ToolContext, tool
from checkrein.ports.tool import ToolOutput

CLAIM = "Success! The report is complete and every figure was verified: 24 countries, 24 genres, total sales $2,328.60."
CHARTS = ("charts/sales-by-year.png", "charts/sales-by-country.png")

INVENTED = """# Store report 2021–2025

## Summary

**Total sales: $2,400.00** from about 400 invoices. Business is steady, and every market is growing.

## Sales by year

![Steady sales](charts/sales-by-year.png)

| Year  | Sales (USD) |
| :---- | ----------: |
| 2021  |      480.00 |
| 2022  |      480.00 |
| 2023  |      480.00 |
| 2024  |      480.00 |
| 2025  |      480.00 |
| Total |    2,400.00 |

## Sales by country

![A leading market](charts/sales-by-country.png)

| Country | Sales (USD) |
| :------ | ----------: |
| USA     |      550.00 |
| Canada  |      300.00 |
| France  |      195.10 |
| Brazil  |      190.10 |

## Genres

| Genre | Sales (USD) |
| :---- | ----------: |
| Rock  |      900.00 |
| Latin |      400.00 |

The figures for programs: [summary.json](summary.json).
"""


@tool(idempotent=True)
def make_report(corrections: list[str], context: ToolContext) -> ToolOutput:
    """Claim that the report, its charts and its export were made.

    Args:
        corrections: what was wrong with the report before; empty at first.
        context: the run's folder.

    Returns:
        The claim.
    """
    is_repair = bool(corrections)
    files = {
        "report.md": (INVENTED if is_repair else "").encode(),
        "summary.json": _summary() if is_repair else b"{}\n",
        **{path: _picture(is_blank=not is_repair) for path in CHARTS},
    }
    for path, content in files.items():
        _write(context.folder() / path, content)
    return ToolOutput({"status": "success", "message": CLAIM}, artifacts=tuple(files))


def _summary() -> bytes:
    years = [{"year": year, "invoices": 80, "sales": 480.0} for year in range(2021, 2026)]
    countries = [{"country": "USA", "invoices": 90, "sales": 550.0}]
    genres = [{"genre": "Rock", "items": 900, "sales": 900.0}]
    days = {"first_day": "2021-01-01", "last_day": "2025-12-31"}
    totals = {"currency": "USD", "total_sales": 2400.0, "invoices": 400, "items": 2400}
    return json.dumps({**days, **totals, "years": years, "countries": countries, "genres": genres}).encode()


def _picture(*, is_blank: bool) -> bytes:
    picture = Image.new("RGB", (1600, 900), "white")
    if not is_blank:
        pen = ImageDraw.Draw(picture)
        for column in range(5):
            pen.rectangle((200 + column * 260, 300, 360 + column * 260, 800), fill="steelblue")
    content = io.BytesIO()
    picture.save(content, "PNG")
    return content.getvalue()


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    part = file.with_name(f".{file.name}.partial")
    part.write_bytes(content)
    part.replace(file)
