"""Picture files: the formats that are read, and their pixels as 8-bit RGB."""

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.TiffImagePlugin import BITSPERSAMPLE, TiffImageFile

from capgrade.schemas.errors import InputError

# By Pillow's names. All others are refused: Pillow hands EPS to Ghostscript, and has decoders that few people test.
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


def open_picture(source: Path | bytes) -> Image.Image:
    """A picture whose header is read and whose pixels are not, of FORMATS only; errors are Pillow's."""
    return Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=tuple(FORMATS))


def decode_image(data: bytes, name: str | Path, row: int | str | None = None) -> np.ndarray:
    """A picture as uint8 (H, W, 3) in R, G, B order, turned by its EXIF orientation as cv2.imread does.

    Grey, palette and CMYK pictures become RGB; of 16 bits per channel the upper 8 are kept, as cv2.imread does.
    InputError, with `name` and `row`, for a picture of another format, of more than 16 bits, damaged, or oversized.
    """
    try:
        with open_picture(data) as image:
            turned = ImageOps.exif_transpose(image)
            if not image.mode.startswith(("I", "F")):
                return np.array(turned.convert("RGB"))
            # Pillow gives a TIFF's 12 bits as 16, and others' 32 as mode I.
            right = image.mode.startswith("I")
            if isinstance(image, TiffImageFile):
                right = image.mode.startswith("I;16") and image.tag_v2.get(BITSPERSAMPLE) == (16,)
            if not right:
                problem = f"pixels of mode {image.mode}; only 8 or 16 bits per channel are read"
                raise InputError(problem, file=name, row=row, remedy="convert it to 8 bits per channel")
            # Its own conversion cuts grey values above 255 to 255, which makes a 16-bit picture white.
            return np.repeat((np.asarray(turned) >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
    except Image.DecompressionBombError as error:
        raise InputError(f"too many pixels ({error})", file=name, row=row, remedy="make it smaller") from error
    except UnidentifiedImageError:
        problem = f"not a readable picture (none of {', '.join(FORMATS)})"
        raise InputError(problem, file=name, row=row, remedy="convert it to one of these") from None
    except InputError:
        raise
    except Exception as error:  # Pillow's decoders let through whatever damaged bytes make them raise
        text = str(error) or type(error).__name__
        raise InputError(f"not a readable picture ({text})", file=name, row=row) from error
