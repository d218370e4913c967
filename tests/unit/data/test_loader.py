"""Batches are those of a plain loop over the files, whatever the workers do or suffer."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tuner.data.decode import decode, fit_square
from tuner.data.index import ImageIndex
from tuner.data.loader import Loader, _even_parts
from tuner.errors import DataError, RunError

STORED_PX = 16

UNGUARDED_SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from tuner.data.index import ImageIndex
from tuner.data.loader import Loader
folder, names = Path(sys.argv[1]), sys.argv[2:]
index = ImageIndex.from_paths("train", folder, ("a",), names, [0] * len(names))
options = {"decoder": "simplejpeg", "num_workers": 2, "prefetch_factor": 1}
loader = Loader({"train": index}, stored_px=16, **options)
for batch in loader.batches("train", [np.array([0]), np.arange(len(names))]):
    print(Path("/proc/thread-self/children").read_text(), flush=True)
"""


@pytest.fixture
def indexes(image_folder: Path) -> dict[str, ImageIndex]:
    return {split: index_of(image_folder, split) for split in ("train", "val")}


def index_of(root: Path, split: str) -> ImageIndex:
    paths = sorted(path.relative_to(root).as_posix() for path in (root / split).rglob("*.*"))
    return ImageIndex.from_paths(split, root, ("a",), paths, [0] * len(paths))


def open_loader(
    indexes: dict[str, ImageIndex],
    num_workers: int,
    *,
    timeout_s: float = 60.0,
    is_checked: bool = True,
) -> Loader:
    return Loader(
        indexes,
        stored_px=STORED_PX,
        decoder="simplejpeg",
        num_workers=num_workers,
        prefetch_factor=2,
        timeout_s=timeout_s,
        is_checked=is_checked,
    )


def expected_batch(index: ImageIndex, positions: np.ndarray) -> torch.Tensor:
    files = [index.absolute(position) for position in positions]
    images = [fit_square(decode(f.read_bytes(), str(f), "cv2"), STORED_PX) for f in files]
    return torch.from_numpy(np.stack(images))


def drawn_positions(sizes: list[int], num_images: int) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.integers(0, num_images, size) for size in sizes]


def child_pids() -> set[int]:
    lists = Path("/proc/self/task").glob("*/children")
    return {int(pid) for pids in lists for pid in pids.read_text().split()}


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    pids, files = child_pids(), exchange_bytes()
    yield
    assert child_pids() == pids
    assert exchange_bytes() == files


def exchange_bytes() -> list[int]:
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [os.stat(link).st_size for link in links if "memfd:tuner" in os.readlink(link)]


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
def test_batches_are_the_files_in_order_for_any_number_of_workers(
    indexes: dict[str, ImageIndex], num_workers: int
) -> None:
    positions = drawn_positions([7, 1, 200, 64, 2, 129], len(indexes["train"]))
    with open_loader(indexes, num_workers) as loader:
        for _ in range(2):
            batches = list(loader.batches("train", positions))
            assert len(batches) == len(positions)
            for batch, chosen in zip(batches, positions, strict=True):
                assert batch.dtype == torch.uint8
                assert torch.equal(batch, expected_batch(indexes["train"], chosen))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_images_of_any_shape_and_channels_make_one_batch(
    hostile_tmp_path: Path, num_workers: int
) -> None:
    (hostile_tmp_path / "train").mkdir()
    kinds = {"RGB": (1, 1), "L": (500, 1), "LA": (1, 500), "RGBA": (9, 7), "P": (40, 30)}
    for number, (mode, size) in enumerate(kinds.items()):
        noise = np.random.default_rng(number).integers(0, 256, (*size, 3), np.uint8)
        Image.fromarray(noise).convert(mode).save(hostile_tmp_path / f"train/{mode}.png")
    index = index_of(hostile_tmp_path, "train")
    wanted = np.arange(len(kinds))
    with open_loader({"train": index}, num_workers) as loader:
        (batch,) = loader.batches("train", [wanted])
    assert (batch.shape, batch.dtype) == ((5, STORED_PX, STORED_PX, 3), torch.uint8)
    assert torch.equal(batch, expected_batch(index, wanted))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_two_splits_are_read_side_by_side(indexes: dict[str, ImageIndex], num_workers: int) -> None:
    train, val = drawn_positions([5] * 4, 24), drawn_positions([3] * 4, 12)
    with open_loader(indexes, num_workers) as loader:
        outer = loader.batches("train", train)
        for chosen_outer in train:
            assert torch.equal(next(outer), expected_batch(indexes["train"], chosen_outer))
            inner = loader.batches("val", val)
            for chosen_inner, batch in zip(val, inner, strict=True):
                assert torch.equal(batch, expected_batch(indexes["val"], chosen_inner))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_iterator_left_midway_disturbs_nothing(
    indexes: dict[str, ImageIndex], num_workers: int
) -> None:
    positions = drawn_positions([40] * 6, 24)
    with open_loader(indexes, num_workers) as loader:
        sizes = []
        for _ in range(10):
            left = loader.batches("train", positions)
            next(left)
            left.close()
            whole = list(loader.batches("train", positions[::-1]))
            assert torch.equal(whole[-1], expected_batch(indexes["train"], positions[0]))
            sizes.append(exchange_bytes())
        assert sizes[5] == sizes[-1]  # the slots of what was left are used again


def test_positions_are_taken_only_as_far_ahead_as_asked(indexes: dict[str, ImageIndex]) -> None:
    taken = []

    def positions() -> Iterator[np.ndarray]:
        for number in range(10):
            taken.append(number)
            yield np.array([number])

    with open_loader(indexes, 1) as loader:
        batches = loader.batches("train", positions())
        next(batches)
        assert taken == [0, 1, 2]
        next(batches)
        assert taken == [0, 1, 2, 3]
        batches.close()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_bad_image_is_named_when_its_batch_is_due(
    indexes: dict[str, ImageIndex], num_workers: int
) -> None:
    bad = indexes["train"].absolute(9)
    bad.write_bytes(b"")
    with open_loader(indexes, num_workers) as loader:
        batches = loader.batches("train", [np.array([8]), np.array([10, 9, 11]), np.array([12])])
        assert torch.equal(next(batches), expected_batch(indexes["train"], np.array([8])))
        with pytest.raises(DataError) as caught:
            next(batches)
        assert str(caught.value) == (
            f"{bad}: the file is empty (0 bytes); replace it or set data.on_bad_image=skip"
        )
        (batch,) = loader.batches("train", [np.array([1, 2])])
        assert torch.equal(batch, expected_batch(indexes["train"], np.array([1, 2])))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_file_that_has_gone_is_named(indexes: dict[str, ImageIndex], num_workers: int) -> None:
    gone = indexes["train"].absolute(3)
    gone.unlink()
    with open_loader(indexes, num_workers) as loader, pytest.raises(DataError) as caught:
        list(loader.batches("train", [np.arange(5)]))
    assert str(caught.value) == f"{gone}: cannot be opened (No such file or directory); put it back"


def test_a_dead_worker_is_told_and_replaced(indexes: dict[str, ImageIndex]) -> None:
    before = child_pids()
    endless = indexes["train"].absolute(0)
    endless.unlink()
    os.mkfifo(endless)
    with open_loader(indexes, 1) as loader:
        (worker,) = child_pids() - before
        batches = loader.batches("train", (np.array([p]) for p in killing(worker)))
        with pytest.raises(RunError) as caught:
            next(batches)
        assert str(caught.value) == (
            f"{endless}: its worker process ended (signal 9); try loader.num_workers=0"
        )
        assert child_pids() == before
        (batch,) = loader.batches("train", [np.array([1, 2])])
        assert torch.equal(batch, expected_batch(indexes["train"], np.array([1, 2])))


def killing(worker: int) -> Iterator[int]:
    yield 0
    os.kill(worker, signal.SIGKILL)


def test_an_image_that_hangs_is_named(indexes: dict[str, ImageIndex]) -> None:
    endless = indexes["train"].absolute(2)
    endless.unlink()
    os.mkfifo(endless)
    with open_loader(indexes, 2, timeout_s=1.0) as loader:
        batches = loader.batches("train", [np.arange(6), np.arange(6, 12)])
        other = loader.batches("val", [np.arange(4)] * 9)
        next(other)
        with pytest.raises(RunError) as caught:
            next(batches)
        assert str(caught.value) == f"{endless}: not read within 1 s; check its disk"
        with pytest.raises(RunError) as caught:
            list(other)
        assert str(caught.value) == "loader: its workers have ended; start the batches anew"


def test_workers_die_with_a_killed_parent_even_while_they_hang(image_folder: Path) -> None:
    good = image_folder / "train" / "class 1" / "0.jpg"
    endless = image_folder / "endless.jpg"
    os.mkfifo(endless)
    names = [path.relative_to(image_folder).as_posix() for path in (good, endless, endless)]
    command = [sys.executable, "-c", UNGUARDED_SCRIPT, str(image_folder), *names]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        ends = [os.pidfd_open(pid) for pid in pids]
        parent.kill()
        for end in ends:
            assert select.select([end], [], [], 5.0)[0] == [end]
            os.close(end)


def test_a_full_shared_memory_does_not_matter(image_folder: Path) -> None:
    fill = "mount -t tmpfs -o size=4k tmpfs /dev/shm && head -c 4096 /dev/zero > /dev/shm/full"
    script = UNGUARDED_SCRIPT.replace("print(", "print(batch.sum().item(), ")
    names = [f"train/class 1/{number}.jpg" for number in range(8)]
    python = [sys.executable, "-c", script, str(image_folder), *names]
    alone = ["unshare", "--mount", "sh", "-c", f'{fill}; exec "$@"', "sh"]
    if subprocess.run(["unshare", "--mount", "sh", "-c", fill], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    full = subprocess.run([*alone, *python], capture_output=True, text=True)
    plain = subprocess.run(python, capture_output=True, text=True, check=True)
    assert full.returncode == 0, full.stderr
    sums = [[line.split()[0] for line in done.stdout.splitlines()] for done in (full, plain)]
    assert sums[0] == sums[1] != []


def test_a_worker_imports_no_torch() -> None:
    code = "import sys, tuner.data.worker; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@given(num_images=st.integers(0, 2000), num_workers=st.integers(1, 40))
def test_parts_are_even_small_and_in_order(num_images: int, num_workers: int) -> None:
    paths = [str(number) for number in range(num_images)]
    parts = list(_even_parts(paths, num_workers))
    assert [path for part in parts for path in part] == paths
    sizes = {len(part) for part in parts}
    assert not sizes or (min(sizes) >= 1 and max(sizes) <= 64 and max(sizes) - min(sizes) <= 1)
    assert len(parts) == num_images or len(parts) % num_workers == 0


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_unchecked_images_that_cannot_be_read_end_nothing(
    indexes: dict[str, ImageIndex], num_workers: int
) -> None:
    index = indexes["train"]
    paths = [str(index.absolute(position)) for position in range(9)]
    Path(paths[1]).write_bytes(Path(paths[1]).read_bytes()[:-60])
    Path(paths[8]).write_bytes(b"")
    requests = [[*paths[:8], "nowhere.jpg"], [paths[8]], paths[2:4]]
    with open_loader({}, num_workers, is_checked=False) as loader:
        first, second, third = loader.read(requests)
    assert first.unreadable[1].startswith("not a readable image (image file is truncated")
    assert first.unreadable[8] == "cannot be opened (No such file or directory)"
    assert set(first.unreadable) == {1, 8}
    assert second.unreadable == {0: "the file is empty (0 bytes)"}
    assert third.unreadable == {}
    assert not first.images[[1, 8]].any()
    good = [0, 2, 3, 4, 5, 6, 7]
    assert torch.equal(first.images[good], expected_batch(index, np.array(good)))
    assert torch.equal(third.images, expected_batch(index, np.array([2, 3])))


def test_an_unchecked_image_that_no_process_survives_ends_nothing(
    indexes: dict[str, ImageIndex],
) -> None:
    index = indexes["train"]
    paths = [str(index.absolute(position)) for position in range(6)]
    endless = str(index.root / "endless.jpg")
    os.mkfifo(endless)
    requests = [paths[:2], [paths[2], endless, paths[3]], paths[4:]]
    with open_loader({}, 2, timeout_s=1.0, is_checked=False) as loader:
        first, second, third = loader.read(requests)
    assert (first.unreadable, third.unreadable) == ({}, {})
    assert second.unreadable == {1: "not read within 1 s"}
    read = torch.cat([first.images, second.images[[0, 2]], third.images])
    assert torch.equal(read, expected_batch(index, np.arange(6)))


def test_processes_that_die_whatever_they_read_are_an_error(
    indexes: dict[str, ImageIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.data.loader.MOST_LOST_IN_A_ROW", 2)
    endless = str(indexes["train"].root / "endless.jpg")
    os.mkfifo(endless)
    with (
        open_loader({}, 1, timeout_s=1.0, is_checked=False) as loader,
        pytest.raises(RunError) as caught,
    ):
        list(loader.read([[endless]]))
    assert str(caught.value) == f"{endless}: not read within 1 s; check its disk"
