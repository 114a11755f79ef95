"""The check `image`: only a picture that decodes to its last row and shows something passes; a bomb is not decoded."""

import io
import struct
import zlib
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from tests.unit.verify.measuring import measure, refused, write


def _encoded(picture: Image.Image, format_: str = "PNG") -> bytes:
    file = io.BytesIO()
    picture.save(file, format_)
    return file.getvalue()


def _chart(mode: str = "RGB", background: object = "white", line: object = "blue") -> Image.Image:
    picture = Image.new(mode, (400, 300), background)  # pyright: ignore[reportArgumentType]  a colour fit for the mode
    ImageDraw.Draw(picture).line((0, 300, 400, 0), fill=line, width=2)  # pyright: ignore[reportArgumentType]
    return picture


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _announcing(width: int, height: int) -> bytes:
    head = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + _chunk(b"IDAT", zlib.compress(bytes(1000))) + _chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(_encoded(_chart()), id="rgb"),
        pytest.param(_encoded(_chart(), "JPEG"), id="jpeg"),
        pytest.param(_encoded(_chart().convert("P")), id="palette"),
        pytest.param(_encoded(_chart("L", 255, 0)), id="grey"),
        pytest.param(_encoded(_chart("1", 1, 0)), id="bits"),
        pytest.param(_encoded(_chart("I;16", 30_000, 30_200)), id="wide grey"),
        pytest.param(_encoded(_chart("RGBA", (0, 0, 0, 0), "black")), id="black on nothing"),
        pytest.param(_encoded(_chart("RGBA", (0, 0, 0, 0), "white")), id="white on nothing"),
        pytest.param(_encoded(_chart("CMYK", (0, 0, 0, 0), (0, 200, 0, 0)), "JPEG"), id="cmyk"),
    ],
)
async def test_a_chart_passes_in_every_mode(content: bytes, tmp_path: Path) -> None:
    write(tmp_path, "chart", content)
    measured = await measure("image", {"path": "chart", "min_width": 400, "min_height": 300}, tmp_path)
    assert measured.passed, measured.text
    assert measured.data["width"] == 400


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(_encoded(Image.new("RGB", (400, 300), "white")), id="white"),
        pytest.param(_encoded(Image.new("RGB", (400, 300), "red"), "JPEG"), id="red"),
        pytest.param(_encoded(Image.new("RGBA", (400, 300), (9, 200, 30, 0))), id="transparent"),
        pytest.param(_encoded(Image.new("I;16", (400, 300), 77)), id="wide grey"),
    ],
)
async def test_a_picture_of_one_colour_is_blank(content: bytes, tmp_path: Path) -> None:
    write(tmp_path, "chart", content)
    assert (await measure("image", {"path": "chart"}, tmp_path)).code == "blank"


async def test_a_speck_of_dust_is_blank_and_a_thin_line_is_not(tmp_path: Path) -> None:
    dust, line = Image.new("RGB", (800, 600), "white"), Image.new("RGB", (800, 600), "white")
    dust.putpixel((5, 5), (0, 0, 0))
    ImageDraw.Draw(line).line((0, 300, 799, 300), fill="black")
    write(tmp_path, "dust.png", _encoded(dust))
    write(tmp_path, "line.png", _encoded(line))
    assert (await measure("image", {"path": "dust.png"}, tmp_path)).code == "blank"
    assert (await measure("image", {"path": "line.png"}, tmp_path)).passed


async def test_a_picture_cut_anywhere_does_not_decode(tmp_path: Path) -> None:
    for content in (_encoded(_chart()), _encoded(_chart(), "JPEG")):
        for end in range(0, len(content) - 2, max(1, len(content) // 60)):
            write(tmp_path, "chart", content[:end])
            assert (await measure("image", {"path": "chart"}, tmp_path)).code == "not_image", end


async def test_a_changed_byte_of_a_png_is_seen_by_its_checksum(tmp_path: Path) -> None:
    content = bytearray(_encoded(_chart()))
    content[content.index(b"IDAT") + 20] ^= 1
    write(tmp_path, "chart", bytes(content))
    assert (await measure("image", {"path": "chart"}, tmp_path)).code == "not_image"


async def test_a_bomb_is_refused_by_the_size_it_announces(tmp_path: Path) -> None:
    write(tmp_path, "bomb.png", _announcing(60_000, 60_000))
    measured = await measure("image", {"path": "bomb.png"}, tmp_path)
    assert (measured.code, "60000 × 60000 pixels" in measured.text) == ("too_large", True)


async def test_a_picture_that_holds_less_than_it_announces_does_not_decode(tmp_path: Path) -> None:
    write(tmp_path, "short.png", _announcing(1_000, 1_000))
    assert (await measure("image", {"path": "short.png"}, tmp_path)).code == "not_image"


async def test_a_compressed_comment_cannot_fill_the_memory(tmp_path: Path) -> None:
    bomb = _chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(200_000_000), 9))
    content = _encoded(_chart())
    write(tmp_path, "chart", content[:33] + bomb + content[33:])
    assert (await measure("image", {"path": "chart"}, tmp_path)).code == "not_image"


@pytest.mark.parametrize(
    ("options", "code"),
    [({"min_width": 401}, "too_small"), ({"min_height": 301}, "too_small"), ({"format": "jpeg"}, "not_image")],
)
async def test_size_and_format_are_compared(options: dict[str, object], code: str, tmp_path: Path) -> None:
    write(tmp_path, "chart.png", _encoded(_chart()))
    assert (await measure("image", {"path": "chart.png", **options}, tmp_path)).code == code


@pytest.mark.parametrize(
    ("options", "key"),
    [({"min_width": 0}, "min_width"), ({"min_height": -1}, "min_height"), ({"format": "gif"}, "format")],
)
def test_options_that_no_picture_can_meet_are_refused(options: dict[str, object], key: str) -> None:
    assert refused("image", {"path": "chart.png", **options}).key == key
