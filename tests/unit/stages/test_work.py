"""The work of a search is counted as it will be done."""

import math
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.prepared import prepare_quietly
from tests.unit.stages.conftest import OpenSearch
from tuner.assemble import checkpoint_bytes, open_run
from tuner.errors import DataError, SettingsError
from tuner.reading import build_loader
from tuner.settings.config import Config, flatten
from tuner.stages.work import count_images, largest_step, plan_work


def test_the_generated_images_are_counted_before_they_are_rendered(search_of: OpenSearch) -> None:
    assert count_images(search_of()) == (1000, 500, 10)


@pytest.mark.parametrize(
    ("limit", "counts"), [(20, (20, 20, 10)), (700, (700, 500, 10)), (9999, (1000, 500, 10))]
)
def test_a_limit_counts_for_each_split(
    search_of: OpenSearch, limit: int, counts: tuple[int, int, int]
) -> None:
    assert count_images(search_of(f"data.limit={limit}")) == counts


@pytest.mark.parametrize("limit", ["null", "15", "5"])
def test_a_folder_is_counted_as_it_will_be_prepared(
    search_of: OpenSearch, image_folder: Path, tmp_path: Path, limit: str
) -> None:
    overrides = ("data.source=folder", f"data.root={image_folder}", f"data.limit={limit}")
    search = search_of(*overrides)
    data = prepare_quietly(search.config, search.cache_root, tmp_path)
    prepared = (len(data.train), len(data.validation), len(data.train.classes))
    assert count_images(search) == prepared


def test_labelled_images_are_counted_as_they_will_be_prepared(
    search_of: OpenSearch, csv_dataset: Path, tmp_path: Path
) -> None:
    search = search_of("data.source=csv", f"data.root={csv_dataset}", "data.limit=15")
    data = prepare_quietly(search.config, search.cache_root, tmp_path)
    assert (len(data.train), len(data.validation), len(data.train.classes)) == (15, 12, 3)
    assert count_images(search) == (15, 12, 3)


def test_a_folder_that_is_not_there_is_told(here: Path, search_of: OpenSearch) -> None:
    with pytest.raises(DataError) as caught:
        count_images(search_of("data.source=folder", "data.root=gone"))
    assert caught.value.problems == (
        f"data.root: '{here}/gone' does not exist; give a folder with one folder per class",
    )


def test_the_work_is_what_the_settings_ask_for(search_of: OpenSearch) -> None:
    search = search_of("train.report_epochs=0.5", "search.confirm_seeds=3")
    work = plan_work(search, 1000, 500, 10)
    assert (work.num_images, work.num_validation, work.report_samples) == (1000, 500, 500)
    assert (work.rungs, work.reduction_factor) == ((1000, 3000, 9000), 3)
    assert (work.trials, work.confirm_runs) == (7, 2 * 3)
    adam = search.config.with_overrides({"optim.name": "adam"})
    assert work.checkpoint_bytes == checkpoint_bytes(
        adam, num_classes=10, num_images=1000, num_validation=500
    )
    more = plan_work(search, 1000, 5000, 10)
    assert more.checkpoint_bytes - work.checkpoint_bytes == 4 * 4500  # an int32 a prediction


@pytest.mark.parametrize(
    ("override", "confirm_runs"),
    [
        ("search.confirm_top=0", 0),
        ("search.confirm_top=5", 10),
        ("search.confirm_top=99", 14),
        ("search.trials=1", 2),
    ],
)
def test_no_more_is_confirmed_than_there_are_trials(
    search_of: OpenSearch, override: str, confirm_runs: int
) -> None:
    assert plan_work(search_of(override), 1000, 500, 10).confirm_runs == confirm_runs


@pytest.mark.parametrize(
    ("scheduler", "rungs"),
    [("asha", (1000, 3000, 9000)), ("asha_stopping", (1000, 3000, 9000)), ("none", (9000,))],
)
def test_without_a_scheduler_there_is_one_length(
    search_of: OpenSearch, scheduler: str, rungs: tuple[int, ...]
) -> None:
    assert plan_work(search_of(f"search.scheduler={scheduler}"), 1000, 500, 10).rungs == rungs


@pytest.mark.parametrize(
    ("key", "small", "large"),
    [
        ("model.name", "lenet", "resnet20"),
        ("optim.name", "sgd", "adamw"),
        ("optim.momentum", "0.0", "0.9"),
        ("mining.ratio", "0", "2"),
    ],
)
def test_disk_is_planned_for_the_largest_checkpoint_that_may_come(
    search_of: OpenSearch, key: str, small: str, large: str
) -> None:
    fixed = ("optim.name=sgd", "parameters.optim.name=null", f"parameters.{key}=")
    overrides = [each for each in fixed if not each.startswith(f"{key}=")]

    def planned(choices: str) -> int:
        search = search_of(*overrides[:-1], f"{overrides[-1]}[{choices}]")
        return plan_work(search, 1000, 500, 10).checkpoint_bytes

    assert planned(small) < planned(large)
    assert planned(f"{small}, {large}") == planned(f"{large}, {small}") == planned(large)


def test_a_model_that_is_not_there_is_told(search_of: OpenSearch) -> None:
    with pytest.raises(SettingsError) as caught:
        plan_work(search_of("parameters.model.name=[lenet, resnet9]"), 1000, 500, 10)
    assert caught.value.problems == (
        "model.name: no such model (resnet9); did you mean resnet8?; use lenet, resnet8, "
        "resnet8_s2, resnet20, resnet20_s2, a torchvision classifier, timm/… or "
        "package.module:function",
    )


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [
        ("lenet", "sgd"),
        ("lenet", "sgd without momentum"),
        ("lenet", "adam"),
        ("lenet", "adamw"),
        ("resnet8_s2", "sgd"),
        ("resnet8_s2", "sgd with mining"),
        ("resnet8_s2", "sgd with an average"),
    ],
)
def test_a_checkpoint_has_at_most_the_size_that_is_planned_and_about_that(
    image_folder: Path, tmp_path: Path, model: str, optimizer: str
) -> None:
    name, *changed = optimizer.split(maxsplit=1)
    config = Config().with_overrides(
        {
            "data.source": "folder",
            "data.root": str(image_folder),
            "data.image_size": 32,
            "model.name": model,
            "train.epochs": 1,
            "optim.name": name,
            "optim.momentum": 0.0 if "without momentum" in changed else 0.9,
            "train.ema_decay": 0.9 if "with an average" in changed else None,
            "mining.ratio": 2 if "with mining" in changed else 0,
        }
    )
    data = prepare_quietly(config, tmp_path)
    with closing(build_loader(config, data, tmp_path)) as loader:
        run = open_run(config, data, loader, tmp_path / "run", on_damaged=pytest.fail)
        with closing(run.results(run.total_samples)) as results:
            assert math.isfinite([result.validation_loss for result in results][-1])
    size_bytes = run.checkpoints.path(run.total_samples).stat().st_size
    planned_bytes = checkpoint_bytes(
        config,
        num_classes=len(data.train.classes),
        num_images=len(data.train),
        num_validation=len(data.validation),
    )
    assert size_bytes <= planned_bytes <= 1.05 * size_bytes


@pytest.mark.parametrize(
    ("overrides", "changed"),
    [
        ([], {"optim.name": "adam", "train.batch_size": 64}),
        (["train.batch_size=8"], {"optim.name": "adam", "train.batch_size": 8}),
        (
            ["parameters.train.batch_size={int: [8, 99]}", "optim.name=adamw"],
            {"optim.name": "adamw", "train.batch_size": 99},
        ),
        (
            ["parameters.model.name=[lenet, resnet8]"],
            {"model.name": "resnet8", "optim.name": "adam", "train.batch_size": 64},
        ),
    ],
)
def test_the_largest_step_has_the_largest_batch_model_and_optimizer(
    search_of: OpenSearch, overrides: list[str], changed: dict[str, Any]
) -> None:
    search = search_of(*overrides)
    assert flatten(largest_step(search)) == flatten(search.config) | changed


@pytest.mark.parametrize(
    ("overrides", "chance"),
    [
        ((), 0.1 + 3 * math.sqrt(0.09 / 400)),
        (("search.metric=balanced_top1",), 0.1 + 3 * math.sqrt(0.09 / 400)),
        (("search.metric=top5",), 0.5 + 3 * math.sqrt(0.25 / 400)),
        (("search.metric=validation_loss",), -math.inf),
        (("search.grace_epochs=1",), -math.inf),
    ],
)
def test_a_guess_is_told_from_learning_where_the_grace_is_left_open(
    search_of: OpenSearch, overrides: tuple[str, ...], chance: float
) -> None:
    search = search_of("search.grace_epochs=auto", *overrides)
    assert plan_work(search, 1000, 400, 10).chance == pytest.approx(chance)


def test_of_five_classes_top5_tells_nothing_of_guessing(search_of: OpenSearch) -> None:
    search = search_of("search.grace_epochs=auto", "search.metric=top5")
    assert plan_work(search, 1000, 400, 5).chance == -math.inf
