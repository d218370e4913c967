"""What every decoder promises: one verdict and one set of pixels for each file."""

import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from tuner.data.decode import (
    DECODERS,
    JPEG_DECODERS,
    MAX_IMAGE_PIXELS,
    check_image,
    decode,
    decode_unchecked,
    is_plain_jpeg,
)
from tuner.errors import DataError

ODD_IMAGES = Path(__file__).parents[3] / "shared" / "data" / "odd-images.zip"
PATH = "train/it's a cat/Ünï 日本.jpg"

Pixels = NDArray[np.uint8]

every_decoder = pytest.mark.parametrize("decoder", sorted(DECODERS))


def photo(height: int = 40, width: int = 56) -> Pixels:
    """Return smooth colours that differ in every corner, so no turn or swap goes unseen."""
    y, x = np.mgrid[0:height, 0:width]
    red, green, blue = x * 255 // width, y * 255 // height, (x + 2 * y) % 120
    return np.stack([red, green, blue], axis=2).astype(np.uint8)


def encoded(image: Image.Image | Pixels, kind: str, **options: Any) -> bytes:
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def grey(pixels: Pixels) -> Pixels:
    return np.repeat(pixels[:, :, None], 3, axis=2)


def largest_difference(one: Pixels, other: Pixels) -> int:
    assert one.shape == other.shape
    return int(np.abs(one.astype(int) - other.astype(int)).max())


@every_decoder
@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_kinds_keep_every_bit(decoder: str, kind: str) -> None:
    found = decode(encoded(photo(), kind), PATH, decoder)
    assert found.dtype == np.uint8
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, photo())


@every_decoder
@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF", "AVIF"])
def test_lossy_kinds_stay_close(decoder: str, kind: str) -> None:
    found = decode(encoded(photo(), kind, quality=95), PATH, decoder)
    assert found.shape == photo().shape
    assert np.abs(found.astype(int) - photo()).mean() < 8


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"quality": 5}])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_jpeg_pixels_are_the_same_bits(mode: str, options: dict[str, Any]) -> None:
    data = encoded(Image.fromarray(photo(61, 67)).convert(mode), "JPEG", **options)
    for decoder in JPEG_DECODERS:
        assert JPEG_DECODERS[decoder](data) is not None
        np.testing.assert_array_equal(decode(data, PATH, decoder), decode(data, PATH, "pil"))


@every_decoder
def test_red_stays_red(decoder: str) -> None:
    red = np.full((16, 16, 3), (250, 5, 5), np.uint8)
    assert largest_difference(decode(encoded(red, "JPEG"), PATH, decoder), red) < 4


@every_decoder
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pixels_come_upright(decoder: str, kind: str, orientation: int) -> None:
    lying = Image.fromarray(photo()).transpose(UNDO[orientation]) if orientation > 1 else photo()
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 95, "subsampling": 0} if kind == "JPEG" else {"lossless": True}
    found = decode(encoded(lying, kind, exif=exif, **options), PATH, decoder)
    assert largest_difference(found, photo()) <= (20 if kind == "JPEG" else 0)


UNDO = {  # the turn that makes an upright picture lie as each orientation says
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


@every_decoder
@pytest.mark.parametrize("orientation", [0, 9, 6000])
def test_an_orientation_that_means_nothing_turns_nothing(decoder: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = decode(encoded(photo(), "PNG", exif=exif), PATH, decoder)
    np.testing.assert_array_equal(found, photo())


@every_decoder
def test_damaged_metadata_says_nothing_about_the_pixels(decoder: str) -> None:
    plain = encoded(photo(), "JPEG")
    damaged = encoded(photo(), "JPEG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\x7fgarbage")
    np.testing.assert_array_equal(
        decode(damaged, PATH, decoder), decode(plain, PATH, decoder), strict=True
    )


@every_decoder
def test_grey_becomes_three_equal_channels(decoder: str) -> None:
    levels = photo()[:, :, 0]
    found = decode(encoded(levels, "PNG"), PATH, decoder)
    np.testing.assert_array_equal(found, grey(levels))


@every_decoder
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_sixteen_bit_grey_is_divided_by_257(decoder: str, kind: str) -> None:
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    expected = np.rint(values / 257).astype(np.uint8)
    found = decode(encoded(Image.fromarray(values), kind), PATH, decoder)
    np.testing.assert_array_equal(found, grey(expected))


@every_decoder
def test_one_bit_is_black_and_white(decoder: str) -> None:
    bits = photo()[:, :, 0] > 100
    found = decode(encoded(Image.fromarray(bits), "PNG"), PATH, decoder)
    np.testing.assert_array_equal(found, grey(bits * np.uint8(255)))


@every_decoder
@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_alpha_is_dropped(decoder: str, mode: str) -> None:
    image = Image.fromarray(photo()).convert("L").convert(mode) if mode == "LA" else photo()
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    clear = image.copy()
    clear.putalpha(0)
    expected = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(decode(encoded(clear, "PNG"), PATH, decoder), expected)


@every_decoder
@pytest.mark.parametrize("transparency", [0, bytes([0, 128, 255])])
@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_a_palette_gives_its_colours(decoder: str, kind: str, transparency: int | bytes) -> None:
    if kind == "GIF" and isinstance(transparency, bytes):
        transparency = 2
    image = Image.fromarray(photo()).quantize(16)
    expected = np.asarray(image.convert("RGB"))
    found = decode(encoded(image, kind, transparency=transparency), PATH, decoder)
    np.testing.assert_array_equal(found, expected)


@every_decoder
def test_cmyk_is_not_inverted(decoder: str) -> None:
    data = encoded(Image.fromarray(photo()).convert("CMYK"), "JPEG", quality=95, subsampling=0)
    assert b"Adobe" in data  # which stores the inks inverted
    assert largest_difference(decode(data, PATH, decoder), photo()) < 30


@every_decoder
@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_the_smallest_shapes_are_images(decoder: str, kind: str, shape: tuple[int, int]) -> None:
    assert decode(encoded(photo(*shape), kind), PATH, decoder).shape == (*shape, 3)


@every_decoder
def test_an_animation_gives_its_first_frame(decoder: str) -> None:
    first, second = (Image.new("RGB", (8, 8), colour) for colour in ("red", "blue"))
    data = encoded(first, "GIF", save_all=True, append_images=[second])
    np.testing.assert_array_equal(decode(data, PATH, decoder), np.asarray(first))


@every_decoder
def test_bytes_behind_the_picture_do_not_matter(decoder: str) -> None:
    data = encoded(photo(), "JPEG")
    np.testing.assert_array_equal(decode(data + b"tail", PATH, decoder), decode(data, PATH, "pil"))


def damaged() -> Iterator[tuple[str, bytes, str]]:
    """Yield a name, the bytes, and how the reason begins."""
    jpeg, png = encoded(photo(200, 300), "JPEG"), encoded(photo(), "PNG")
    unknown = "not an image of a known kind (JPEG, PNG, BMP, GIF, WEBP, TIFF, PPM, AVIF)"
    yield "empty", b"", "the file is empty (0 bytes)"
    yield "zeros", bytes(1000), unknown
    yield "text", b"not an image at all\n" * 50, unknown
    yield "svg", b'<svg xmlns="http://www.w3.org/2000/svg"/>', unknown
    yield "half a jpeg", jpeg[: len(jpeg) // 2], "not a readable image (image file is truncated"
    yield "jpeg without its end", jpeg[:-2], "not a readable image (image file is truncated"
    yield "half a png", png[: len(png) // 2], "not a readable image ("
    yield "png without its end", png[:-6], "not a readable image ("
    yield "head alone", jpeg[:30], "not a readable image (Truncated File Read)"
    middle = png.index(b"IDAT") + 40
    flipped = png[:middle] + bytes([png[middle] ^ 1]) + png[middle + 1 :]
    yield "flipped bit", flipped, "not a readable image (broken PNG file"
    bmp = encoded(photo(), "BMP")
    huge = bmp[:18] + (10**5).to_bytes(4, "little") * 2 + bmp[26:]
    yield "decompression bomb", huge, "not a readable image (Image size (10000000000 pixels)"
    yield "floats", encoded(Image.new("F", (4, 4)), "TIFF"), "not a readable image (floating-point"
    wide = Image.fromarray(np.full((4, 4), 70_000, np.int32))
    yield "32-bit grey", encoded(wide, "TIFF"), "not a readable image (grey values are outside"


@every_decoder
@pytest.mark.parametrize(
    ("data", "reason"), [pytest.param(data, reason, id=name) for name, data, reason in damaged()]
)
def test_bad_files_are_refused_by_path(decoder: str, data: bytes, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        decode(data, PATH, decoder)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{PATH}: {reason}")
    assert problem.endswith("; replace it or set data.on_bad_image=skip")
    assert "\n" not in problem
    assert check_image(data, PATH, decoder).reason == problem
    why = decode_unchecked(data, decoder)
    assert problem == f"{PATH}: {why}; replace it or set data.on_bad_image=skip"


@every_decoder
def test_a_size_above_the_limit_is_refused_before_any_pixel(decoder: str) -> None:
    side = int(MAX_IMAGE_PIXELS**0.5) + 1
    png = encoded(photo(), "PNG")
    data = encoded(Image.new("1", (side, side)), "PNG")
    with pytest.raises(DataError) as caught:
        decode(data, PATH, decoder)
    assert str(caught.value) == (
        f"{PATH}: not a readable image ({side} x {side} is above {MAX_IMAGE_PIXELS:,} pixels); "
        "replace it or set data.on_bad_image=skip"
    )
    assert len(png) > 0


BASES = [
    encoded(Image.fromarray(photo()).convert(mode), "JPEG", **options)
    for mode, options in (("RGB", {}), ("L", {}), ("RGB", {"progressive": True}))
] + [encoded(photo(), "PNG")]


@given(st.sampled_from(BASES), st.data())
def test_any_damage_gets_one_verdict_and_the_same_pixels(base: bytes, data: st.DataObject) -> None:
    damaged_bytes = bytearray(base)
    for place in data.draw(st.lists(st.integers(0, len(base) - 1), min_size=1, max_size=3)):
        damaged_bytes[place] ^= data.draw(st.integers(1, 255))
    content = bytes(damaged_bytes[: data.draw(st.integers(1, len(base)))])
    verdicts = {check_image(content, PATH, decoder) for decoder in DECODERS}
    assert len(verdicts) == 1
    if verdicts.pop().ok:
        first, *others = (decode(content, PATH, decoder) for decoder in DECODERS)
        for other in others:
            np.testing.assert_array_equal(first, other)


def exif_of(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


JPEGS = {
    "baseline": (encoded(photo(), "JPEG"), True),
    "progressive": (encoded(photo(), "JPEG", progressive=True), True),
    "grey": (encoded(photo()[:, :, 0], "JPEG"), True),
    "restarts": (encoded(photo(), "JPEG", restart_marker_rows=1), True),
    "comment": (encoded(photo(), "JPEG", comment=b"a cat"), True),
    "red, green, blue": (encoded(photo(), "JPEG", keep_rgb=True), False),
    "lies on its side": (encoded(photo(), "JPEG", exif=exif_of(6)), False),
    "four channels": (encoded(Image.fromarray(photo()).convert("CMYK"), "JPEG"), False),
}


@pytest.mark.parametrize(("data", "is_plain"), JPEGS.values(), ids=list(JPEGS))
def test_a_checked_file_has_the_same_pixels_by_its_shorter_way(data: bytes, is_plain: bool) -> None:
    assert is_plain_jpeg(data) is is_plain
    assert _verdict_of_both(data, PATH)


@given(cut=st.integers(0, len(JPEGS["baseline"][0]) - 1))
def test_no_cut_jpeg_is_plain(cut: int) -> None:
    assert not is_plain_jpeg(JPEGS["baseline"][0][:cut])


@pytest.mark.skipif(not ODD_IMAGES.exists(), reason="the collection of odd images is not here")
def test_odd_images_of_many_projects_get_one_verdict() -> None:
    with zipfile.ZipFile(ODD_IMAGES) as archive:
        names = [name for name in archive.namelist() if not name.endswith(("/", ".csv"))]
        verdicts = [_verdict_of_both(archive.read(name), name) for name in names]
    assert len(verdicts) == 133
    assert 60 < sum(verdicts) < 110


def _verdict_of_both(data: bytes, name: str) -> bool:
    verdicts = {check_image(data, name, decoder) for decoder in DECODERS}
    assert len(verdicts) == 1
    verdict = verdicts.pop()
    if verdict.reason is not None:
        assert verdict.reason.startswith(f"{name}: ")
        assert verdict.reason.isprintable()
        return False
    first, *others = (
        decode(data, name, decoder, is_checked=is_checked)
        for decoder in DECODERS
        for is_checked in (False, True)
    )
    for other in others:
        np.testing.assert_array_equal(first, other)
    assert first.shape == (verdict.height, verdict.width, 3)
    return True
