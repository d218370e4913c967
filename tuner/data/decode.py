"""From a file's bytes to RGB pixels, the same verdict and pixels whichever decoder reads them.

Pillow reads every kind of image. simplejpeg takes over where it gives the same bits in a half to a
fifth of the time (2026-12), OpenCV with a smaller gain: a complete JPEG of one or three channels.
OpenCV's PNG decoder gains nothing (zlib is the work in both), and its readers of other kinds
disagree with Pillow about which files are good.
"""

import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from io import BytesIO
from typing import TypeAlias

import cv2
import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from tuner.errors import DataError

Pixels: TypeAlias = NDArray[np.uint8]
DecodeJpeg: TypeAlias = Callable[[bytes], Pixels | None]  # None: let Pillow decide

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM", "AVIF")
WHAT_TO_DO = "; replace it or set data.on_bad_image=skip"
MAX_IMAGE_PIXELS = 150_000_000  # 450 MB as RGB; a larger size in a header is an attack or a mistake
JPEG_START, JPEG_END = b"\xff\xd8", b"\xff\xd9"
SEGMENT, FRAME = struct.Struct(">HH"), struct.Struct(">BHHB")
FRAME_HEADERS = (0xFFC0, 0xFFC2)  # baseline and progressive
PLAIN_SEGMENTS = (0xFFE0, 0xFFDB, 0xFFC4, 0xFFDD, 0xFFFE)  # JFIF, tables, restarts, comment

# What EXIF orientation 2 to 8 asks for; 1 and anything unknown is upright.
TURNS: dict[int, Callable[[Pixels], Pixels]] = {
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: pixels[::-1].swapaxes(0, 1),
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: lambda pixels: pixels[:, ::-1].swapaxes(0, 1),
}


@dataclass(frozen=True, slots=True)
class ImageVerdict:
    """Whether a file is a good image: `reason` says why not, and is None for a good one."""

    reason: str | None
    width: int = 0
    height: int = 0
    mode: str = ""  # Pillow's name for how its pixels are stored: L, RGB, CMYK, P ...

    @property
    def ok(self) -> bool:
        """Return whether the image can be used."""
        return self.reason is None


def decode(data: bytes, path: str, decoder: str, *, is_checked: bool = False) -> Pixels:
    """Return the pixels as RGB, uint8 (height, width, 3), upright as EXIF says.

    Alpha is dropped, 16-bit grey is divided by 257 and rounded, of an animation the first frame
    is taken. `decoder` is a key of DECODERS. `is_checked` says that `check_image` has found the
    file good: a plain JPEG is then decoded without being parsed by Pillow first, half of the time
    that one of 32 pixels takes.

    Raises:
        DataError: The file is empty, cut short, damaged, too large or no image; begins with `path`.
    """
    decode_jpeg = _jpeg_decoder(decoder)
    if is_checked and decode_jpeg and is_plain_jpeg(data):
        pixels = decode_jpeg(data)
        if pixels is not None:
            return pixels
    try:
        return _decode(data, decoder)
    except Exception as error:  # Pillow's plugins raise what they meet: SyntaxError, IndexError ...
        reason = _reason(data, error)
        raise DataError(f"{path}: {reason}{WHAT_TO_DO}") from error


def decode_unchecked(data: bytes, decoder: str) -> Pixels | str:
    """Return the pixels as `decode` does, or why the file is no good image, as `check_image` finds.

    It is decoded by Pillow and by `decoder`: each alone passes files that the other refuses.
    """
    _jpeg_decoder(decoder)
    try:
        if decoder != "pil":
            _decode(data, "pil")
        return _decode(data, decoder)
    except Exception as error:
        return _reason(data, error)


def is_plain_jpeg(data: bytes) -> bool:
    """Return whether this is a whole JPEG of 1 or 3 channels, 8 bits, with no metadata but JFIF's.

    Only the segments before the frame header are walked (ITU-T T.81, annex B).
    """
    if not (data.startswith(JPEG_START) and data.endswith(JPEG_END)):
        return False
    at = len(JPEG_START)
    try:
        while True:
            marker, length = SEGMENT.unpack_from(data, at)
            if marker in FRAME_HEADERS:
                bits, height, width, channels = FRAME.unpack_from(data, at + SEGMENT.size)
                size = height * width
                return bits == 8 and channels in (1, 3) and 0 < size <= MAX_IMAGE_PIXELS
            if marker not in PLAIN_SEGMENTS:
                return False
            at += 2 + length
    except struct.error:  # the file ends before its frame header
        return False


def check_image(data: bytes, path: str, decoder: str) -> ImageVerdict:
    """Return whether Pillow and `decoder` both find the file whole; never raises for a bad file."""
    try:
        height, width, _ = decode(data, path, "pil").shape
        if decoder != "pil":
            decode(data, path, decoder)
    except DataError as error:
        return ImageVerdict(reason=str(error))
    with warnings.catch_warnings(action="ignore"):
        mode = Image.open(BytesIO(data), formats=FORMATS).mode
    return ImageVerdict(reason=None, width=width, height=height, mode=mode)


def fit_square(image: Pixels, size_px: int) -> Pixels:
    """Return the centre square of `image` resized, uint8 (size_px, size_px, 3).

    This is the only resize there is. Area averaging on the way down does not alias.
    """
    height, width, _ = image.shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = image[top : top + side, left : left + side]
    if side == size_px:
        return np.ascontiguousarray(square)
    how = cv2.INTER_AREA if side > size_px else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(square, (size_px, size_px), interpolation=how), np.uint8)


def decoder_versions() -> str:
    """Return the versions that pixels and verdicts depend on."""
    simplejpeg = metadata.version("simplejpeg")
    return f"simplejpeg {simplejpeg}, opencv {cv2.__version__}, pillow {PIL.__version__}"


def use_one_thread() -> None:
    """Keep OpenCV from using every core: the processes around it share them already."""
    cv2.setNumThreads(0)


def _jpeg_decoder(decoder: str) -> DecodeJpeg | None:
    decode_jpeg = JPEG_DECODERS.get(decoder)
    if decode_jpeg is _by_simplejpeg:
        import_module("simplejpeg")  # here, or a missing package would be every image's fault
    return decode_jpeg


def _decode(data: bytes, decoder: str) -> Pixels:
    # One warning for each file with odd metadata would bury everything else.
    with warnings.catch_warnings(action="ignore"):
        image = _open(data)
        pixels = DECODERS[decoder](image, data)
        turn = TURNS.get(_orientation(image))
    return np.ascontiguousarray(turn(pixels) if turn else pixels)


def _open(data: bytes) -> Image.Image:
    image = Image.open(BytesIO(data), formats=FORMATS)
    if image.width * image.height > MAX_IMAGE_PIXELS:
        raise ValueError(f"{image.width} x {image.height} is above {MAX_IMAGE_PIXELS:,} pixels")
    if image.format == "PNG":
        image.verify()  # the checksums, which load() passes over; a verified image cannot be loaded
        image = Image.open(BytesIO(data), formats=FORMATS)
    return image


def _pixels_pil(image: Image.Image, data: bytes) -> Pixels:
    image.load()
    if image.mode == "F":
        raise ValueError("floating-point pixels have no agreed range")
    if image.mode.startswith("I"):
        return _eight_bits(np.asarray(image))
    image.info.pop("transparency", None)
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def _pixels_fast(decode_jpeg: DecodeJpeg, image: Image.Image, data: bytes) -> Pixels:
    # OpenCV returns a half grey image for a JPEG that is cut short; Pillow refuses it.
    if image.format in ("JPEG", "MPO") and image.mode in ("L", "RGB") and data.endswith(JPEG_END):
        pixels = decode_jpeg(data)
        if pixels is not None:
            return pixels
    return _pixels_pil(image, data)


def _by_simplejpeg(jpeg: bytes) -> Pixels | None:
    import simplejpeg  # here: what decodes with OpenCV or Pillow runs without it

    try:
        return np.asarray(simplejpeg.decode_jpeg(jpeg, "RGB"), np.uint8)
    except ValueError:  # the least oddity: Pillow decides
        return None


def _by_cv2(jpeg: bytes) -> Pixels | None:
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    pixels = cv2.imdecode(np.frombuffer(jpeg, np.uint8), flags)
    return None if pixels is None else np.asarray(pixels, np.uint8)


def _eight_bits(grey: NDArray[np.generic]) -> Pixels:
    wide = grey.astype(np.int64)
    if wide.min() < 0 or wide.max() > 65535:
        raise ValueError("grey values are outside 0 to 65535")
    return np.repeat(((wide + 128) // 257).astype(np.uint8)[:, :, None], 3, axis=2)


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged metadata says nothing about the pixels
        return 1


def _reason(data: bytes, error: Exception) -> str:
    if not data:
        return "the file is empty (0 bytes)"
    if isinstance(error, UnidentifiedImageError):  # its text holds a memory address
        return f"not an image of a known kind ({', '.join(FORMATS)})"
    return f"not a readable image ({' '.join(str(error).split()) or type(error).__name__})"


JPEG_DECODERS: dict[str, DecodeJpeg] = {"simplejpeg": _by_simplejpeg, "cv2": _by_cv2}
DECODERS: dict[str, Callable[[Image.Image, bytes], Pixels]] = {
    **{name: partial(_pixels_fast, each) for name, each in JPEG_DECODERS.items()},
    "pil": _pixels_pil,
}
