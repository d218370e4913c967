import hashlib
import io
import pickle
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from tests.conftest import SmallDisk
from tests.unit.training.conftest import small_net
from tuner.errors import CheckpointError
from tuner.training.checkpoint import CheckpointFolder, save_weights, weights_sha256
from tuner.training.optim import build_optimizer
from tuner.training.state import start_state


class Told(list[str]):
    """Collects what is said of damaged files."""

    def folder(self, path: Path) -> CheckpointFolder:
        return CheckpointFolder(path, self.append)


def payload(value: int) -> dict[str, Any]:
    return {"weights": torch.full((4,), value), "history": [{"top1": 0.5, "reason": None}]}


def test_a_payload_comes_back_as_it_was_saved(hostile_tmp_path: Path) -> None:
    folder = Told().folder(hostile_tmp_path / "trials" / "0007")
    assert folder.newest() is None
    folder.save(payload(3), 12_000)
    assert folder.path(12_000).name == "000012000.pt"
    found = folder.newest()
    assert found is not None
    assert found[0] == 12_000
    assert torch.equal(found[1]["weights"], torch.full((4,), 3))
    assert found[1]["history"] == payload(3)["history"]


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_torch_load_reads_a_state_s_file_as_it_is(
    tmp_path: Path, name: str, precision: str
) -> None:
    state = start_state(
        lambda: small_net(nn.BatchNorm2d(8)),
        lambda model: build_optimizer(model, name=name, lr=1, momentum=0.9, weight_decay=0),
        device=torch.device("cpu"),
        precision=precision,
        batch_size=4,
        accumulate_steps=1,
        seed=0,
    )
    for parameter in state.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    state.optimizer.step()
    folder = Told().folder(tmp_path)
    folder.save(state.to_plain(), 5)
    plain = torch.load(folder.path(5))
    assert plain.keys() == state.to_plain().keys()
    state.restore(plain)


def test_the_newest_two_and_the_kept_stay(tmp_path: Path) -> None:
    folder = Told().folder(tmp_path)
    for samples_seen in range(10, 60, 10):
        folder.save(payload(samples_seen), samples_seen, keep={20})
        assert len(folder.saved()) <= 3
    assert folder.saved() == [20, 40, 50]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "000000020.pt",
        "000000040.pt",
        "000000050.pt",
    ]


def test_names_are_compared_as_numbers(tmp_path: Path) -> None:
    folder = Told().folder(tmp_path)
    for samples_seen in (999_999_999, 10_000_000_000):
        folder.save(payload(1), samples_seen)
    found = folder.newest()
    assert found is not None
    assert found[0] == 10_000_000_000


def test_a_run_that_goes_back_drops_what_lay_ahead(tmp_path: Path) -> None:
    folder = Told().folder(tmp_path)
    for samples_seen in (10, 30, 40):
        folder.save(payload(1), samples_seen, keep={10, 40})
    found = folder.newest(at_most=29)
    assert found is not None
    assert found[0] == 10
    folder.save(payload(2), 20, keep={40})
    assert folder.saved() == [10, 20, 40]


def test_every_flipped_byte_is_found_and_the_file_before_used(tmp_path: Path) -> None:
    told = Told()
    folder = told.folder(tmp_path)
    folder.save(payload(1), 1)
    folder.save(payload(2), 2)
    good = folder.path(2).read_bytes()
    for place in range(len(good)):
        flipped = bytearray(good)
        flipped[place] ^= 1 << place % 8
        folder.path(2).write_bytes(flipped)
        with pytest.raises(CheckpointError):
            folder.load(2)
    found = folder.newest()
    assert found is not None
    assert found[0] == 1
    assert told == [
        f"{folder.path(2)}: is damaged (its SHA-256 does not fit); 000000001.pt is used instead"
    ]


def test_every_cut_is_found(tmp_path: Path) -> None:
    told = Told()
    folder = told.folder(tmp_path)
    folder.save(payload(2), 2)
    good = folder.path(2).read_bytes()
    for length in range(len(good)):
        folder.path(2).write_bytes(good[:length])
        with pytest.raises(CheckpointError):
            folder.load(2)
    assert folder.newest() is None
    assert told == [
        f"{folder.path(2)}: is damaged (its SHA-256 does not fit); training begins anew"
    ]


def test_every_file_that_is_passed_over_is_told_with_the_one_that_is_used(tmp_path: Path) -> None:
    told = Told()
    folder = told.folder(tmp_path)
    for samples_seen in (1, 2, 3):
        folder.save(payload(samples_seen), samples_seen, keep={1})
    for samples_seen in (2, 3):
        folder.path(samples_seen).write_bytes(b"")
    found = folder.newest()
    assert found is not None
    assert found[0] == 1
    assert told == [
        f"{folder.path(samples_seen)}: is damaged (its SHA-256 does not fit); "
        "000000001.pt is used instead"
        for samples_seen in (3, 2)
    ]


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def saved_by_torch(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def test_code_in_a_checkpoint_is_never_run(tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    told = Told()
    folder = told.folder(tmp_path / "0007")
    folder.save(payload(1), 1)
    trap = {**payload(2), "trap": Trap(sprung)}
    for body in (pickle.dumps(trap, protocol=2), saved_by_torch(trap)):
        folder.path(2).write_bytes(body + hashlib.sha256(body).digest())
        found = folder.newest()
        assert found is not None
        assert found[0] == 1
        assert not sprung.exists()
    assert told == 2 * [
        f"{folder.path(2)}: is no checkpoint (torch refuses it: UnpicklingError); "
        "000000001.pt is used instead"
    ]
    pickle.loads(pickle.dumps(trap))
    assert sprung.exists()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "torch refuses it: EOFError"),
        (b"not a pickle", "torch refuses it: UnpicklingError"),
        (saved_by_torch(payload(1))[:-30], "torch refuses it: RuntimeError"),
        (saved_by_torch([1, 2]), "list"),
    ],
)
def test_what_torch_cannot_read_is_no_checkpoint(tmp_path: Path, body: bytes, why: str) -> None:
    folder = Told().folder(tmp_path)
    folder.path(7).write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(CheckpointError) as caught:
        folder.load(7)
    assert caught.value.problems == (f"{folder.path(7)}: is no checkpoint ({why})",)


def test_whatever_error_torch_has_for_wrong_bytes_it_is_told_as_no_checkpoint(
    tmp_path: Path,
) -> None:
    folder = Told().folder(tmp_path)
    good = saved_by_torch(payload(1))
    kinds = set()
    for place in range(0, len(good), 7):
        body = good[:place] + b"\x85" + good[place + 1 :]
        folder.path(7).write_bytes(body + hashlib.sha256(body).digest())
        try:
            folder.load(7)
        except CheckpointError as error:
            kinds.add(type(error.__cause__))
    assert len(kinds) > 3


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    folder = Told().folder(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        folder.load(7)
    assert str(caught.value) == (
        f"{tmp_path}/000000007.pt: cannot be read (No such file or directory)"
    )


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_cannot_be_written_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    folder = Told().folder(tmp_path / "0007")
    folder.save(payload(1), 1)
    before = folder.path(1).read_bytes()
    with largest_file(200), pytest.raises(CheckpointError) as caught:
        folder.save(payload(2), 2)
    assert re.sub(r"[\d,]+ MB", "N MB", str(caught.value)) == (
        f"{tmp_path}: no checkpoint can be written (File too large, N MB free); mend that"
    )
    assert [path.name for path in folder.folder.iterdir()] == ["000000001.pt"]
    assert folder.path(1).read_bytes() == before


def test_a_full_disk_leaves_the_checkpoints_and_no_half_one(small_disk: SmallDisk) -> None:
    folder = Told().folder(small_disk.path / "0007")
    folder.save(payload(1), 1)
    small_disk.fill()
    with pytest.raises(CheckpointError) as caught:
        folder.save(payload(2), 2)
    assert str(caught.value) == (
        f"{small_disk.path}: no checkpoint can be written (No space left on device, 0 MB free); "
        "make room"
    )
    assert [path.name for path in folder.folder.iterdir()] == ["000000001.pt"]
    folder.load(1)
    small_disk.resize(2**21)
    folder.save(payload(2), 2)
    assert folder.saved() == [1, 2]


def test_a_file_that_cannot_be_removed_is_told(tmp_path: Path) -> None:
    folder = Told().folder(tmp_path / "0007")
    folder.path(1).mkdir(parents=True)  # stands for a file of another user: root may remove those
    told = f"{tmp_path}/0007: 000000001.pt cannot be removed (Is a directory, N MB free); mend that"
    with pytest.raises(CheckpointError) as caught:
        folder.remove(1)
    assert re.sub(r"[\d,]+ MB", "N MB", str(caught.value)) == told
    folder.save(payload(2), 2)
    with pytest.raises(CheckpointError) as caught:
        folder.save(payload(3), 3)
    assert re.sub(r"[\d,]+ MB", "N MB", str(caught.value)) == told
    assert folder.saved() == [1, 2, 3]
    (folder.folder / ".000000001.pt.4242.tmp").mkdir()
    with pytest.raises(CheckpointError) as caught:
        folder.remove_left_overs()
    assert re.sub(r"[\d,]+ MB", "N MB", str(caught.value)) == (
        f"{tmp_path}/0007: a file that was left half written cannot be removed (Is a directory, "
        "N MB free); mend that"
    )


def test_a_disk_that_fails_where_a_file_is_removed_stays_its_own_error(
    small_disk: SmallDisk,
) -> None:
    folder = Told().folder(small_disk.path)
    folder.save(payload(1), 1)
    small_disk.make_read_only()
    with pytest.raises(OSError, match="Read-only file system"):
        folder.remove(1)


def test_what_a_killed_process_left_is_removed_by_the_next_save(tmp_path: Path) -> None:
    (tmp_path / ".000000001.pt.4242.tmp").write_bytes(b"half")
    folder = Told().folder(tmp_path)
    assert folder.newest() is None
    folder.save(payload(2), 2)
    assert [path.name for path in tmp_path.iterdir()] == ["000000002.pt"]


def test_the_hash_sees_every_bit_and_no_memory_layout() -> None:
    torch.manual_seed(0)
    model = small_net(nn.BatchNorm2d(8))
    first = weights_sha256(model)
    assert weights_sha256(model.to(memory_format=torch.channels_last)) == first
    for tensor in model.state_dict().values():
        tensor[(0,) * tensor.ndim] += 1
        assert weights_sha256(model) != first
        first = weights_sha256(model)


def test_exported_weights_load_into_a_new_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = small_net(nn.BatchNorm2d(8)).to(memory_format=torch.channels_last)
    save_weights(model.state_dict(), tmp_path / "model.safetensors")
    other = small_net(nn.BatchNorm2d(8))
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "model.safetensors"))
    assert weights_sha256(other) == weights_sha256(model)
