"""Picture files become 8-bit RGB, or one error says why not."""

import io
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capgrade.pictures.picture import FORMATS, SUFFIXES, Picture, decode_image
from capgrade.schemas.errors import InputError

GREY16 = np.arange(0, 65536, dtype=np.uint16).reshape(256, 256)
TURNED = Image.Exif()
TURNED[0x0112] = 6  # a quarter turn


def stored(image: Image.Image, format: str, **options: object) -> bytes:
    data = io.BytesIO()
    image.save(data, format, **options)
    return data.getvalue()


@pytest.mark.parametrize("mode", ["L", "P", "RGB", "RGBA", "CMYK", "LA", "1"])
def test_every_mode_becomes_rgb_and_is_turned(mode: str) -> None:
    image = Image.new("RGB", (7, 5), (255, 255, 255)).convert(mode)
    rgb = decode_image(stored(image, "TIFF" if mode == "CMYK" else "PNG", exif=TURNED), "x")
    assert rgb.shape == (7, 5, 3) and rgb.dtype == np.uint8


@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda _: b"not a picture", lambda data: data[:900]]
)
def test_unreadable_pictures_are_named(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(InputError, match=r"bad\.jpg row 3: not a readable picture"):
        decode_image(damage(stored(Image.effect_noise((90, 90), 50), "JPEG")), "bad.jpg", 3)


def test_too_many_pixels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(InputError, match="x: too many pixels .* -> make it smaller"):
        decode_image(stored(Image.new("L", (20, 20)), "PNG"), "x")


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_of_the_list_is_read(format: str) -> None:
    rgb = decode_image(stored(Image.new("RGB", (7, 5), (200, 30, 40)), format), "x")
    assert rgb.shape == (5, 7, 3) and np.abs(rgb.astype(int) - (200, 30, 40)).max() <= 4


def test_other_formats_never_reach_their_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow runs Ghostscript, a program of its own, on an EPS."""

    def ran(*_: object, **__: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr(subprocess, "check_call", ran)
    monkeypatch.setattr(subprocess, "Popen", ran)
    for format in ("EPS", "ICNS", "TGA", "PCX", "PDF"):
        path = tmp_path / "x.png"  # whatever it is called
        path.write_bytes(stored(Image.new("RGB", (16, 16)), format))
        with pytest.raises(
            InputError, match=r"x.png: not a readable picture \(none of JPEG, .* -> convert it"
        ):
            decode_image(path.read_bytes(), path)
        assert Picture("x", str(path)).size() is None


@pytest.mark.parametrize("format", ["PNG", "TIFF", "PPM"])
def test_16_bits_are_scaled(format: str) -> None:
    """Pillow's conversion gave 255 for 99.6 % of these values."""
    rgb = decode_image(stored(Image.fromarray(GREY16), format), "x")
    assert rgb.dtype == np.uint8
    np.testing.assert_array_equal(rgb, np.repeat((GREY16 // 256)[:, :, None], 3, axis=2))


def test_16_bits_are_turned_by_their_orientation() -> None:
    rgb = decode_image(stored(Image.fromarray(GREY16[:10]), "PNG", exif=TURNED), "x")
    np.testing.assert_array_equal(rgb[..., 0], np.rot90(GREY16[:10] // 256, -1))


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_more_than_16_bits_are_refused(dtype: type) -> None:
    data = stored(Image.fromarray(np.ones((4, 4), dtype)), "TIFF")
    with pytest.raises(
        InputError,
        match=(
            r"x row 3: pixels of mode [IF]; only 8 or 16 bits per channel are read -> convert it"
            r" to 8"
        ),
    ):
        decode_image(data, "x", 3)


def test_a_tiff_of_12_bits_is_refused() -> None:
    """Pillow gives its values, 0 to 4095, as 16-bit ones: an all but black picture."""
    entry = b"\x02\x01\x03\x00\x01\x00\x00\x00"  # tag 258, one short
    data = stored(Image.fromarray(GREY16[:4]), "TIFF").replace(
        entry + b"\x10\x00", entry + b"\x0c\x00"
    )
    with Image.open(io.BytesIO(data)) as made:
        assert made.mode == "I;16" and made.tag_v2[258] == (12,)
    with pytest.raises(
        InputError, match="pixels of mode I;16; only 8 or 16 bits per channel are read"
    ):
        decode_image(data, "x")


def test_suffixes_are_those_of_the_formats() -> None:
    registered = Image.registered_extensions()
    assert {registered[suffix] for suffix in SUFFIXES} == set(FORMATS)
