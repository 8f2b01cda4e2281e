"""Picture files: the formats that are read, and their pixels as 8-bit RGB."""

import io
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.TiffImagePlugin import BITSPERSAMPLE, TiffImageFile

from capgrade.schemas.errors import InputError

# By Pillow's names. All others are refused: Pillow hands EPS to Ghostscript, and has decoders that
# few people test.
FORMATS = {
    "JPEG": (".jpg", ".jpeg", ".jpe"),
    "PNG": (".png",),
    "WEBP": (".webp",),
    "BMP": (".bmp",),
    "GIF": (".gif",),
    "TIFF": (".tif", ".tiff"),
    "PPM": (".ppm", ".pgm"),
}
SUFFIXES = frozenset(suffix for suffixes in FORMATS.values() for suffix in suffixes)


STARTS_WITHIN = 16  # bytes by which a format is known
_STARTS = (
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    b"GIF87a",
    b"GIF89a",
    b"II*\0",
    b"MM\0*",
    b"II+\0",
    b"MM\0+",
)


def is_picture(start: bytes) -> bool:
    """Whether a file that begins so, with STARTS_WITHIN bytes, is of one of FORMATS: whole or
    damaged."""
    if start.startswith(_STARTS) or (start[:4] == b"RIFF" and start[8:12] == b"WEBP"):
        return True
    if (
        start[:2] == b"BM"
    ):  # two letters, with which texts begin too; then the size, and four bytes that are zero
        return start[6:10] == bytes(4)
    return start[:1] == b"P" and start[1:2] in b"123456" and start[2:3].isspace()


def open_picture(source: Path | bytes) -> Image.Image:
    """A picture whose header is read and whose pixels are not, of FORMATS only; errors are
    Pillow's."""
    return Image.open(
        io.BytesIO(source) if isinstance(source, bytes) else source, formats=tuple(FORMATS)
    )


ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIDEWAYS = (5, 6, 7, 8)  # orientations that exchange width and height


def orientation(image: Image.Image) -> int:
    """EXIF's; 1 where there is none or it is damaged, and for a TIFF, which Pillow turns itself.
    Its own `exif_transpose` would take XMP's, which cv2.imread does not read."""
    exif = Image.Exif()
    if "exif" not in image.info or isinstance(image, TiffImageFile):
        return 1
    try:
        exif.load(image.info["exif"])
        turn = exif.get(ORIENTATION)
    except (
        Exception
    ):  # the parser lets through whatever damaged bytes make it raise; the pixels may be whole
        return 1
    return turn if turn in TURNS else 1


def decode_image(data: bytes, name: str | Path, row: int | str | None = None) -> np.ndarray:
    """A picture as uint8 (H, W, 3) in R, G, B order, turned by its EXIF orientation as cv2.imread
    does.

    Grey, palette and CMYK pictures become RGB; of 16 bits per channel the upper 8 are kept, as
    cv2.imread does. InputError, with `name` and `row`, for a picture of another format, of more
    than 16 bits, damaged, or oversized.
    """
    try:
        with open_picture(data) as image:
            image.info.pop("xmp", None)  # else Pillow would turn a TIFF by it
            image.load()  # which turns a TIFF
            turn = TURNS.get(orientation(image))
            turned = image if turn is None else image.transpose(turn)
            if not image.mode.startswith(("I", "F")):
                return np.array(turned.convert("RGB"))
            # Pillow gives a TIFF's 12 bits as 16, and others' 32 as mode I.
            right = image.mode.startswith("I")
            if isinstance(image, TiffImageFile):
                right = image.mode.startswith("I;16") and image.tag_v2.get(BITSPERSAMPLE) == (16,)
            if not right:
                problem = f"pixels of mode {image.mode}; only 8 or 16 bits per channel are read"
                raise InputError(
                    problem, file=name, row=row, remedy="convert it to 8 bits per channel"
                )
            # Its own conversion cuts grey values above 255 to 255, which makes a 16-bit picture
            # white.
            return np.repeat((np.asarray(turned) >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
    except Image.DecompressionBombError as error:
        raise InputError(
            f"too many pixels ({error})", file=name, row=row, remedy="make it smaller"
        ) from error
    except UnidentifiedImageError:
        problem = f"not a readable picture (none of {', '.join(FORMATS)})"
        raise InputError(problem, file=name, row=row, remedy="convert it to one of these") from None
    except InputError:
        raise
    except (
        Exception
    ) as error:  # Pillow's decoders let through whatever damaged bytes make them raise
        text = str(error) or type(error).__name__
        raise InputError(f"not a readable picture ({text})", file=name, row=row) from error
