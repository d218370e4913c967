"""The verdict on a file, and the one resize."""

from io import BytesIO

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from tuner.data.decode import (
    DECODERS,
    ImageVerdict,
    check_image,
    decode,
    fit_square,
    use_one_thread,
)


def jpeg(height: int, width: int, **options: object) -> bytes:
    file = BytesIO()
    Image.new("RGB", (width, height), "teal").save(file, "JPEG", **options)
    return file.getvalue()


@pytest.mark.parametrize("decoder", sorted(DECODERS))
def test_a_good_image_has_its_upright_size_and_no_reason(decoder: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    verdict = check_image(jpeg(20, 30, exif=exif), "a.jpg", decoder)
    assert verdict == ImageVerdict(reason=None, width=20, height=30, mode="RGB")
    assert verdict.ok


def test_a_file_that_one_library_alone_passes_is_bad_for_both() -> None:
    whole = jpeg(64, 64)
    # A marker that does not exist, behind the last pixels: OpenCV has stopped reading by then.
    place = whole.index(b"\xff\xda") + 30
    broken = whole[:place] + b"\xff\x68" + whole[place + 2 :]
    verdicts = {check_image(broken, "a.jpg", decoder) for decoder in DECODERS}
    assert len(verdicts) == 1
    assert not verdicts.pop().ok


def test_a_complete_jpeg_goes_to_opencv_and_a_cut_one_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def imdecode(data: NDArray[np.uint8], flags: int) -> NDArray[np.uint8]:
        seen.append(data.tobytes())
        return np.zeros((64, 64, 3), np.uint8)

    monkeypatch.setattr(cv2, "imdecode", imdecode)
    whole = jpeg(64, 64)
    assert decode(whole, "a.jpg", "pil").any()
    assert not check_image(whole[:-80], "a.jpg", "cv2").ok
    assert not decode(whole, "a.jpg", "cv2").any()
    assert seen == [whole]


def test_fitting_takes_the_centre() -> None:
    image = np.zeros((4, 8, 3), np.uint8)
    image[:, 2:6] = np.arange(1, 5)[None, :, None]
    np.testing.assert_array_equal(fit_square(image, 4), image[:, 2:6])
    np.testing.assert_array_equal(fit_square(image.swapaxes(0, 1), 4), image[:, 2:6].swapaxes(0, 1))


def test_shrinking_averages_whole_blocks() -> None:
    image = np.random.default_rng(0).integers(0, 256, (12, 12, 3), np.uint8)
    blocks = image.reshape(4, 3, 4, 3, 3).mean(axis=(1, 3))
    assert np.abs(fit_square(image, 4) - blocks).max() <= 0.5


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_any_shape_fits_any_size_and_a_flat_image_stays_flat(
    height: int, width: int, size_px: int
) -> None:
    fitted = fit_square(np.full((height, width, 3), (10, 100, 200), np.uint8), size_px)
    assert fitted.dtype == np.uint8
    assert fitted.flags.c_contiguous
    np.testing.assert_array_equal(fitted, np.full((size_px, size_px, 3), (10, 100, 200)))


def test_opencv_can_be_kept_to_one_thread() -> None:
    use_one_thread()
    assert cv2.getNumThreads() == 1
