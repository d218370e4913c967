"""The generated set is made once, always the same, and labelled as promised."""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tuner.data import generated
from tuner.data.generated import ensure_generated
from tuner.data.scene import HARDSHIPS, photograph
from tuner.data.things import THINGS
from tuner.errors import DataError


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


@pytest.fixture
def _few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "IMAGES_PER_KIND", {"train": 2, "val": 1})
    monkeypatch.setattr(generated, "MISLABELLED_PER_KIND", {"train": 1, "val": 0})


def digest(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{f.relative_to(folder)} {hashlib.sha256(f.read_bytes()).hexdigest()}" for f in files]
    return "\n".join(lines)


def counting(calls: list[tuple[int, int]]) -> Callable[[int, int], None]:
    return lambda done, total: calls.append((done, total))


@pytest.mark.parametrize("kind", THINGS)
@pytest.mark.parametrize("hardship", ["none", *HARDSHIPS])
def test_a_seed_is_a_photograph_with_light_and_detail(kind: str, hardship: str) -> None:
    first, again, other = (
        photograph(kind, hardship, 84, 81, generator(seed))  # type: ignore[arg-type]
        for seed in (1, 1, 2)
    )
    assert first.shape == (81, 84, 3)
    assert first.dtype == np.uint8
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.std() > 5


def test_dark_photographs_are_dark() -> None:
    plain, dark = (photograph("mug", how, 80, 80, generator(3)) for how in ("none", "dark"))
    assert dark.mean() < 0.6 * plain.mean()


def test_six_training_labels_of_a_hundred_are_wrong_and_classes_stay_even() -> None:
    tasks = list(generated._tasks())
    labels = Counter((split, label) for split, _, _, label in tasks)
    assert labels == {("train", name): 100 for name in THINGS} | {
        ("val", name): 50 for name in THINGS
    }
    wrong = Counter((split, kind) for split, kind, _, label in tasks if label != kind)
    assert wrong == {("train", name): 6 for name in THINGS}


@pytest.mark.usefixtures("_few_images")
def test_the_set_is_rendered_once_and_always_the_same(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    first = ensure_generated(tmp_path / "a" / "cache", counting(calls))
    assert calls == [(done, 30) for done in range(1, 31)]
    assert ensure_generated(tmp_path / "a" / "cache", counting(calls)) == first
    assert len(calls) == 30
    assert digest(first) == digest(ensure_generated(tmp_path / "b"))
    assert {path.name for path in first.iterdir()} == {"train", "val"}
    for path in first.rglob("*.jpg"):
        with Image.open(path) as image:
            assert image.format == "JPEG"
            assert 80 <= min(image.size) <= max(image.size) <= 96
    assert {path.name for path in (first / "train" / "apple").iterdir()} == {
        "apple_001.jpg",
        "starfish_000.jpg",
    }


@pytest.mark.usefixtures("_few_images")
def test_what_a_killed_render_left_is_made_anew(tmp_path: Path) -> None:
    left = tmp_path / f"{generated.FOLDER}.unfinished" / "train" / "apple"
    left.mkdir(parents=True)
    (left / "apple_099.jpg").write_bytes(b"half")
    folder = ensure_generated(tmp_path)
    assert len(list(folder.rglob("*.jpg"))) == 30
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {generated.FOLDER}


@pytest.mark.usefixtures("_few_images")
def test_of_two_that_ask_at_once_one_renders(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    threads = [
        threading.Thread(target=ensure_generated, args=(tmp_path, counting(calls)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [(done, 30) for done in range(1, 31)]


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    root = tmp_path / "file" / "cache"
    with pytest.raises(DataError) as caught:
        ensure_generated(root)
    assert str(caught.value) == (
        f"data.cache_root: cannot write to {root} (Not a directory); use another folder"
    )
