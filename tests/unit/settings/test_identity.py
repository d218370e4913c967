"""What a run that was begun may change, and what makes it another run."""

from typing import Any

import pytest

from tuner.settings.config import Config
from tuner.settings.identity import binding_settings, describe_changes


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("search.confirm_top", 5),
        ("search.confirm_seeds", 9),
        ("search.trials", 99),
        ("search.max_concurrent", 1),
        ("resources.dashboard", True),
        ("resources.cpus_per_trial", 2.0),
        ("resources.gpus_per_trial", 0.5),
        ("loader.num_workers", 4),
        ("data.cache_root", "/elsewhere"),
    ],
)
def test_speed_room_and_how_much_is_asked_for_may_change(key: str, value: Any) -> None:
    changed = Config().with_overrides({key: value})
    assert changed != Config()
    assert binding_settings(changed) == binding_settings(Config())


@pytest.mark.parametrize(
    ("key", "value", "change"),
    [
        ("train.epochs", 12, "train.epochs was 9 and is now 12"),
        ("train.seed", 1, "train.seed was 0 and is now 1"),
        ("search.seed", 1, "search.seed was 0 and is now 1"),
        ("data.limit", 50, "data.limit was null and is now 50"),
        ("model.name", "lenet", 'model.name was "resnet8_s2" and is now "lenet"'),
    ],
)
def test_what_changes_results_may_not(key: str, value: Any, change: str) -> None:
    changed = Config().with_overrides({key: value})
    changes = describe_changes(binding_settings(Config()), binding_settings(changed))
    assert changes == [change]


@pytest.mark.parametrize(
    ("told", "change"),
    [("2 added", "the images are others: 2 added"), ("", "the images are others")],
)
def test_other_images_are_told_by_how_they_differ(told: str, change: str) -> None:
    before, now = {"data_fingerprint": "f00d"}, {"data_fingerprint": "beef"}
    assert describe_changes(before, now, told) == [change]
    assert describe_changes(now, now, told) == []


def test_label_files_may_move_as_the_images_may() -> None:
    before = {"data.source": "csv", "data.root": "/a", "data.train_labels": "x.csv"}
    now = {"data.source": "csv", "data.root": "/b", "data.validation_labels": "/c/y.csv"}
    bindings = [binding_settings(Config().with_overrides(each)) for each in (before, now)]
    assert bindings[0] == bindings[1]
