import errno
import json
import math
import re
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.laws import Killed, assert_resumes_exactly
from tests.unit.training.conftest import RECIPE, MemoryLoader, memory_loader, small_net
from tuner.data.augment import augment_batch
from tuner.errors import DataError
from tuner.training.checkpoint import CheckpointFolder, weights_sha256
from tuner.training.ghost_norm import use_ghost_batch_norm
from tuner.training.loop import STEPS_PER_CHECK, fit
from tuner.training.optim import build_optimizer
from tuner.training.plan import Recipe
from tuner.training.result import EpochResult
from tuner.training.state import TrainState, start_state


def net() -> nn.Module:
    model = small_net(nn.BatchNorm2d(8), dropout=0.3)
    use_ghost_batch_norm(model, 2)
    return model


def start(
    build: Callable[[], nn.Module] = net,
    optimizer: str = "sgd",
    precision: str = "fp32",
    accumulate_steps: int | str = 2,
) -> TrainState:
    return start_state(
        build,
        lambda model: build_optimizer(model, name=optimizer, lr=1, momentum=0.9, weight_decay=1e-3),
        device=torch.device("cpu"),
        precision=precision,
        batch_size=RECIPE.batch_size,
        accumulate_steps=accumulate_steps,
        seed=0,
    )


def run(
    state: TrainState, recipe: Recipe = RECIPE, num_train: int = 30, **options: Any
) -> Generator[EpochResult, None, None]:
    loader = memory_loader(num_train)
    options.setdefault("until_samples", recipe.epochs * num_train)
    options.setdefault("loader", loader)
    return fit(state, train=loader.train, validation=loader.validation, recipe=recipe, **options)


@pytest.mark.parametrize(("optimizer", "coming"), [("sgd", 0), ("adam", 2)])
def test_the_first_step_alone_asks_for_room_and_halves_until_there_is(
    monkeypatch: pytest.MonkeyPatch, optimizer: str, coming: int
) -> None:
    asked: list[int] = []

    def has_margin(device: torch.device, coming_bytes: int) -> bool:
        asked.append(coming_bytes)
        return len(asked) > 1

    monkeypatch.setattr("tuner.training.loop.has_margin", has_margin)
    auto, fixed = (start(net, optimizer, accumulate_steps=steps) for steps in ("auto", 2))
    assert auto.micro_batch_size == 2 * fixed.micro_batch_size
    weight_bytes = 4 * sum(weight.numel() for weight in auto.model.parameters())
    results = list(run(auto))
    assert asked == [coming * weight_bytes] * 2
    assert {result.micro_batch_size for result in results} == {fixed.micro_batch_size}
    list(run(fixed))
    assert weights_sha256(auto.model) == weights_sha256(fixed.model)
    assert len(asked) == 3


def test_a_run_that_goes_on_keeps_its_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    before = start()
    next(run(before))
    resumed = start()
    resumed.restore(before.to_plain())
    monkeypatch.setattr("tuner.training.loop.has_margin", lambda *_: False)
    assert {result.micro_batch_size for result in run(resumed)} == {before.micro_batch_size}


def test_reports_tell_exact_scores_and_their_place() -> None:
    state = start()
    results = list(run(state))
    assert [r.samples_seen for r in results] == [16, 30, 46, 60, 76, 90]
    assert [r.nominal_samples for r in results] == [15, 30, 45, 60, 75, 90]
    assert [r.epoch for r in results] == [seen / 30 for seen in (16, 30, 46, 60, 76, 90)]
    assert state.optimizer_steps == 3 * 4
    for result in results:
        assert result.num_evaluated == 11
        assert result.top1 == result.num_correct / 11
        assert result.top5 == 1.0  # of three classes
        assert result.train_loss > 0
        assert 0 <= result.train_top1 <= 1
        assert result.micro_batch_size == 4
        assert result.seconds == pytest.approx(
            result.train_s + result.data_wait_s + result.evaluate_s
        )
        assert result.images_per_s > 0
        assert result.peak_memory_bytes > 0
        assert result.reason is None
    assert [r.to_plain() for r in results] == state.history
    assert json.loads(json.dumps(state.history, allow_nan=False)) == state.history


def test_training_learns() -> None:
    recipe = replace(RECIPE, epochs=12, augment=replace(RECIPE.augment, rotate90=False))
    last = list(run(start(), recipe))[-1]
    assert last.top1 > 0.7


def test_the_training_loss_is_the_mean_over_the_images_since_the_report_before() -> None:
    def still() -> nn.Module:
        model = small_net(nn.GroupNorm(2, 8))
        for parameter in model[-1].parameters():
            nn.init.zeros_(parameter)
        return model

    results = list(run(start(still), replace(RECIPE, peak_lr=0.0)))
    assert [r.train_loss for r in results] == pytest.approx([math.log(3)] * 6)
    assert [r.validation_loss for r in results] == pytest.approx([math.log(3)] * 6)
    assert [r.train_top1 for r in results][1::2] != [0.0] * 3


@pytest.mark.parametrize("batch_size", [1, 7, 30, 64])
@pytest.mark.parametrize("accumulate_steps", [1, 3])
def test_the_optimizer_steps_ceil_of_images_over_batch_times(
    batch_size: int, accumulate_steps: int
) -> None:
    recipe = replace(RECIPE, batch_size=batch_size, epochs=2)
    state = start_state(
        net,
        lambda model: build_optimizer(model, name="sgd", lr=1, momentum=0.9, weight_decay=0),
        device=torch.device("cpu"),
        precision="fp32",
        batch_size=batch_size,
        accumulate_steps=accumulate_steps,
        seed=0,
    )
    taken = 0

    def count(*_: Any) -> None:
        nonlocal taken
        taken += 1

    state.optimizer.register_step_post_hook(count)
    assert [r.reason for r in run(state, recipe)][-1] is None
    assert taken == state.optimizer_steps == 2 * -(-30 // batch_size)
    assert state.samples_seen == 60


def test_neither_reports_nor_saves_nor_stops_change_a_weight() -> None:
    hashes = set()
    for report_samples, checkpoint_every_s in ((15, math.inf), (90, math.inf), (15, 0.0)):
        state = start()
        recipe = replace(RECIPE, report_samples=report_samples)
        for result in run(
            state, recipe, save=lambda _: torch.rand(3), checkpoint_every_s=checkpoint_every_s
        ):
            assert result.reason is None
            torch.rand(1)
        hashes.add(weights_sha256(state.model))
    state = start()
    for until in (15, 45, 90):
        assert list(run(state, until_samples=until))[-1].nominal_samples == until
    assert [r["nominal_samples"] for r in state.history] == [15, 30, 45, 60, 75, 90]
    hashes.add(weights_sha256(state.model))
    assert len(hashes) == 1


def test_nothing_is_left_to_do_at_the_end() -> None:
    state = start()
    list(run(state))
    assert list(run(state)) == []
    assert list(run(state, until_samples=10**6)) == []


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_run_killed_at_any_step_resumes_to_the_same_bits(
    tmp_path: Path, optimizer: str, precision: str
) -> None:
    assert_resumes_exactly(
        partial(start, optimizer=optimizer, precision=precision),
        lambda state, save: run(state, save=save, checkpoint_every_s=0.0),
        CheckpointFolder(tmp_path, pytest.fail),
    )


def test_a_report_is_saved_before_it_is_told_and_never_without_its_state() -> None:
    state, saved = start(), []

    def save(state: TrainState) -> None:
        saved.append((state.samples_seen, len(state.history)))

    for told, result in enumerate(run(state, save=save, checkpoint_every_s=0.0), start=1):
        assert saved[-1] == (result.samples_seen, told)
    assert [seen for seen, _ in saved] == sorted({seen for seen, _ in saved})
    assert len(saved) == state.optimizer_steps


def test_saves_between_reports_wait_for_their_time() -> None:
    saved: list[int] = []
    list(run(start(), save=lambda state: saved.append(state.samples_seen), checkpoint_every_s=1e6))
    assert saved == [16, 30, 46, 60, 76, 90]


def test_a_diverged_run_ends_with_its_reason() -> None:
    state = start(partial(small_net, nn.GroupNorm(2, 8)))
    recipe = replace(RECIPE, peak_lr=1e30, clip_norm=None, warmup_fraction=0.0)
    results = list(run(state, recipe))
    assert [r.reason for r in results] == ["diverged"]
    assert results[0].message == "training loss is nan after 16 images"
    plain = results[0].to_plain()
    assert (plain["top1"], plain["validation_loss"], plain["train_loss"]) == (None, None, None)
    assert state.history == []


def test_a_long_epoch_is_not_finished_after_the_loss_is_lost() -> None:
    recipe = replace(RECIPE, batch_size=1, peak_lr=1e30, clip_norm=None, report_samples=500)
    (result,) = run(start(partial(small_net, nn.GroupNorm(2, 8))), recipe, num_train=300)
    assert (result.reason, result.samples_seen) == ("diverged", STEPS_PER_CHECK)


class Faulty(nn.Module):
    """Works for `calls` forward passes of training."""

    def __init__(self, calls: int, error: BaseException) -> None:
        super().__init__()
        self.inner, self.calls, self.error = small_net(nn.GroupNorm(2, 8)), calls, error

    def forward(self, images: Tensor) -> Tensor:
        self.calls -= self.training
        if self.calls < 0:
            raise self.error
        logits: Tensor = self.inner(images)
        return logits


class NotANumber(nn.Module):
    """Trains well and evaluates to NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small_net(nn.GroupNorm(2, 8))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inner(images)
        return logits if self.training else logits * math.nan


def test_scores_that_are_no_numbers_are_no_scores() -> None:
    (result,) = run(start(NotANumber))
    assert result.reason == "diverged"
    assert result.message == "validation loss is nan after 16 images"
    assert math.isnan(result.top1)


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (torch.OutOfMemoryError("no"), "out_of_memory",
         "one slice of 1 images does not fit in memory"),
        (DataError("a/1.jpg: cannot be read"), "error", "a/1.jpg: cannot be read"),
        (ValueError("bad\nand more"), "error", r"ValueError: bad \(test_loop.py:\d+\)"),
    ],
    ids=str,
)  # fmt: skip
def test_an_error_is_told_by_a_last_result(error: Exception, reason: str, message: str) -> None:
    state = start(partial(Faulty, 6, error))
    results = list(run(state))
    assert [r.reason for r in results] == [None, reason]
    assert re.fullmatch(message, results[-1].message)
    assert results[-1].samples_seen == 16 + 8


def test_an_image_that_cannot_be_read_is_told() -> None:
    class Unreadable(MemoryLoader):
        def batches(self, split: str, positions: Iterable[Any]) -> Any:
            yield from super().batches(split, [next(iter(positions))])
            raise DataError("train/7.png: cannot be read")

    good = memory_loader(30)
    (result,) = run(start(), loader=Unreadable(good.train, good.validation, good.pixels))
    assert (result.reason, result.message) == ("error", "train/7.png: cannot be read")
    assert result.samples_seen == 8


def test_a_disk_that_is_full_or_fails_is_no_fault_of_the_run() -> None:
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
        with pytest.raises(OSError, match="the disk") as caught:
            list(run(start(partial(Faulty, 6, OSError(number, "the disk")))))
        assert caught.value.errno == number


@pytest.mark.parametrize("signal", [KeyboardInterrupt(), Killed()], ids=repr)
def test_an_interrupt_passes(signal: BaseException) -> None:
    with pytest.raises(type(signal)):
        list(run(start(partial(Faulty, 6, signal))))


def test_closing_a_run_closes_its_reader() -> None:
    class Watched(MemoryLoader):
        open_readers: set[str] = set()

        def batches(self, split: str, positions: Iterable[Any]) -> Any:
            self.open_readers.add(split)
            try:
                yield from super().batches(split, positions)
            finally:
                self.open_readers.remove(split)

    good = memory_loader(30)
    loader = Watched(good.train, good.validation, good.pixels)
    with closing(run(start(), loader=loader)) as results:
        next(results)
        assert loader.open_readers == {"train"}
    assert loader.open_readers == set()


def test_a_slice_halved_for_memory_is_kept_in_the_state(tmp_path: Path) -> None:
    class Little(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, images: Tensor) -> Tensor:
            if self.training and len(images) > 2:
                raise torch.OutOfMemoryError("no")
            logits: Tensor = self.inner(images)
            return logits

    state = start(Little)
    assert [r.micro_batch_size for r in run(state)] == [2] * 6
    other = start(Little)
    other.restore(state.to_plain())
    assert other.micro_batch_size == 2


def test_neither_slices_nor_memory_that_runs_out_for_the_input_change_what_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[Tensor]] = []

    class Seeing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, images: Tensor) -> Tensor:
            if self.training:
                seen[-1].append(images)
            logits: Tensor = self.inner(images)
            return logits

    def little(images: Tensor, *args: Any, **options: Any) -> Tensor:
        if len(images) > 2:
            raise torch.OutOfMemoryError("no")
        return augment_batch(images, *args, **options)

    recipe = replace(RECIPE, peak_lr=0.0)
    for augment in (augment_batch, little):
        seen.append([])
        monkeypatch.setattr("tuner.training.loop.augment_batch", augment)
        assert [r.reason for r in run(start(Seeing), recipe)] == [None] * 6
    assert {len(images) for images in seen[0]} == {2, 4}
    assert {len(images) for images in seen[1]} == {2}
    assert torch.equal(torch.cat(seen[0]), torch.cat(seen[1]))
