"""The check `image`: a PNG or JPEG decodes to its last row and shows something. The decoder here also serves the check `file`.

Pillow's own opener guesses among forty formats and warns of bombs; here the two formats are opened by their own classes, after the announced size was compared with
`MAX_PIXELS`, so nothing is decoded that would not fit.
"""

import io
import struct
import zlib
from typing import ClassVar, Final, Literal, TypeAlias

from PIL import Image, ImageFile, ImageStat
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.values import JsonObject
from checkrein.verify.artifacts import Unmet, finding, read_artifact
from checkrein.verify.base import ArtifactCheck, refuse

__all__ = ["MAX_PIXELS", "ImageCheck", "decode_image"]

ImageFormat: TypeAlias = Literal["", "png", "jpeg"]

MAX_PIXELS: Final = 50_000_000
MAX_IMAGE_BYTES: Final = 64 * 1024 * 1024
STRIP_PIXELS: Final = 2_000_000
BLANK_DEVIATION: Final = 1.0
"""Standard deviation, of 255, below which a picture counts as blank: a line through a chart gives more than 5, a few specks of dust less than 1."""

_CLASSES: Final[dict[str, type[ImageFile.ImageFile]]] = {"png": PngImageFile, "jpeg": JpegImageFile}
# What Pillow raises for damaged files, in its own words and in those of the libraries below it.
_DAMAGE: Final = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    EOFError,
    OverflowError,
    AttributeError,
    struct.error,
    zlib.error,
)


def decode_image(content: bytes, path: str, wanted: ImageFormat = "") -> Image.Image:
    """Decode a picture wholly and return it.

    Args:
        content: the file's bytes.
        path: the artifact's path, for messages.
        wanted: the format it must have; either one when empty.

    Raises:
        Unmet: `not_image` when it is neither PNG nor JPEG, or not the wanted one, or damaged or cut off; `too_large` when it has more than
            50 million pixels.
    """
    found = "png" if content.startswith(b"\x89PNG\r\n\x1a\n") else "jpeg" if content.startswith(b"\xff\xd8\xff") else ""
    if not found or (wanted and found != wanted):
        raise Unmet(
            "not_image",
            f"{path} is no {(wanted or 'PNG or JPEG').upper() if wanted else 'PNG or JPEG'} picture"
            + (f" but {found.upper()}" if found else ""),
        )
    try:
        if found == "png":
            # Decoding passes over checksums; this reads every chunk and compares them.
            PngImageFile(io.BytesIO(content)).verify()
        picture = _CLASSES[found](io.BytesIO(content))
        _refuse_bomb(picture, path)
        picture.load()
    except _DAMAGE as error:
        raise Unmet("not_image", f"{path} does not decode: {error}") from error
    return picture


def _refuse_bomb(picture: Image.Image, path: str) -> None:
    if picture.width * picture.height > MAX_PIXELS:
        raise Unmet(
            "too_large",
            f"{path} has {picture.width} × {picture.height} pixels, more than the {MAX_PIXELS:,} that are decoded",
        )


def deviation(picture: Image.Image) -> float:
    """Return the largest standard deviation of a colour, from 0 (one colour) to 127.5, as seen on white or on black where it is transparent."""
    if picture.mode.startswith(("I", "F")):
        # Wide grey values: stretched to the range of bytes by their own extremes.
        low, high = (float(value) for value in picture.getextrema()[:2])  # pyright: ignore[reportArgumentType]  one band gives two numbers
        scale = 255 / (high - low) if high > low else 0.0
        picture = picture.convert("F").point(lambda value: value * scale - low * scale).convert("L")
    on_white, on_black = [0] * 768, [0] * 768
    rows = max(1, STRIP_PIXELS // picture.width)
    for top in range(0, picture.height, rows):
        strip = picture.crop((0, top, picture.width, min(top + rows, picture.height))).convert("RGBA")
        for histogram, colour in ((on_white, "white"), (on_black, "black")):
            seen = Image.alpha_composite(Image.new("RGBA", strip.size, colour), strip).convert("RGB").histogram()
            histogram[:] = [one + other for one, other in zip(histogram, seen, strict=True)]
    return max(*ImageStat.Stat(on_white).stddev, *ImageStat.Stat(on_black).stddev)


class ImageCheck(ArtifactCheck, frozen=True, kw_only=True):
    """A picture decodes, is large enough and is not blank.

    Attributes:
        format: `png` or `jpeg`; either when it is not given.
        min_width: pixels.
        min_height: pixels.
    """

    name: ClassVar[str] = "image"
    revision: ClassVar[str] = "1"
    format: ImageFormat = ""
    min_width: int = 1
    min_height: int = 1

    def validated(self) -> None:
        """Refuse sizes below 1.

        Raises:
            TaskError: one is.
        """
        for key, size in (("min_width", self.min_width), ("min_height", self.min_height)):
            if size < 1:
                refuse(key, f"is {size}", "give a number of pixels, 1 or more")

    def in_words(self) -> str:
        """Return the title."""
        return f"{self.path} is a picture that shows something"

    def look(self, context: CheckContext) -> Measurement:
        """Decode the picture, compare its size, and look for more than one colour."""
        picture = decode_image(read_artifact(context.folder, self.path, limit=MAX_IMAGE_BYTES), self.path, self.format)
        spread = round(deviation(picture), 2)
        data = {"width": picture.width, "height": picture.height, "deviation": spread, "format": str(picture.format)}
        size = f"{picture.width} × {picture.height} pixels"
        if picture.width < self.min_width or picture.height < self.min_height:
            return finding(
                "too_small", f"{self.path} has {size}, at least {self.min_width} × {self.min_height} are required", data
            )
        if spread < BLANK_DEVIATION:
            return finding("blank", f"{self.path} is blank: {size} of one colour (deviation {spread} of 255)", data)
        return Measurement(
            passed=True,
            text=f"{self.path} decodes: {picture.format}, {size}, not blank (deviation {spread} of 255)",
            data=JsonObject(data),
        )
