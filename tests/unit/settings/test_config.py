"""Settings are checked in one place, all mistakes are told, and every form reads back equal."""

import math
import types
from typing import Annotated, Any, Literal, get_args, get_origin

import annotated_types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from tuner.errors import SettingsError
from tuner.settings.checks import LARGEST_SEED
from tuner.settings.config import Config, flatten, known_fields, to_overrides
from tuner.settings.sections import OptimConfig
from tuner.settings.text import read_overrides


def values_of(annotation: Any, metadata: list[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for the values a field's annotation and bounds allow."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return st.sampled_from(args)
    if origin is Annotated:
        return values_of(args[0], list(args[1:]))
    if origin is not None:
        return st.one_of(*(values_of(arg, []) for arg in args))
    bounds: dict[str, Any] = {}
    for bound in metadata:
        match bound:
            case annotated_types.Gt(gt=low):
                bounds |= {"min_value": low, "exclude_min": True}
            case annotated_types.Ge(ge=low):
                bounds |= {"min_value": low}
            case annotated_types.Lt(lt=high):
                bounds |= {"max_value": high, "exclude_max": True}
            case annotated_types.Le(le=high):
                bounds |= {"max_value": high}
    if annotation is float:
        return st.floats(allow_nan=False, allow_infinity=False, **bounds)
    plain = {
        bool: st.booleans(),
        types.NoneType: st.none(),
        str: st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1)
        | st.sampled_from(["null", '"', '"quoted"', "'a'", "#x", " x ", "a: b", "1", "true", "~"]),
        int: st.integers(**{key: value for key, value in bounds.items() if "exclude" not in key}),
    }
    return plain[annotation]


def strategy(field: FieldInfo) -> st.SearchStrategy[Any]:
    """Return a strategy for the values a declared setting allows."""
    return values_of(field.annotation, field.metadata)


FREE_KEYS = {key: strategy(field) for key, field in known_fields().items()}


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Draw valid settings of every key: free values, those that depend on others made to fit."""
    values = {key: draw(each) for key, each in FREE_KEYS.items()}
    epochs = draw(st.integers(1, 500))
    grace = draw(st.just("auto") | st.integers(1, epochs) | st.floats(0.01, epochs))
    length = max(1, round(epochs / 17)) if isinstance(grace, str) else grace
    values |= {
        "train.epochs": epochs,
        "search.grace_epochs": grace,
        "train.report_epochs": draw(st.none() | st.integers(1, 9).map(lambda n: length / n)),
        "train.accumulate_steps": draw(st.integers(1, values["train.batch_size"])),
        "train.seed": min(values["train.seed"], LARGEST_SEED - values["search.confirm_seeds"]),
        "mining.end_fraction": draw(
            st.floats(values["mining.start_fraction"], 1, exclude_min=True)
        ),
        "data.root": None if values["data.source"] == "generated" else draw(values_of(str, [])),
    }
    if values["data.source"] not in ("csv", "list"):
        values |= {"data.train_labels": None, "data.validation_labels": None}
    if values["data.source"] == "torchvision":
        values["data.dataset"] = draw(values_of(str, []))
    else:
        values |= {"data.dataset": None, "data.download": False}
    return Config().with_overrides(values)


def refusals(overrides: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        Config().with_overrides(overrides)
    return caught.value.problems


@given(configs())
def test_settings_written_as_arguments_read_back_equal(config: Config) -> None:
    values, problems = read_overrides(to_overrides(config))
    assert problems == []
    assert Config().with_overrides(values) == config


@given(configs())
def test_settings_written_as_json_read_back_equal(config: Config) -> None:
    assert Config.from_json(config.to_json()) == config


@given(configs())
def test_flattened_settings_are_overrides(config: Config) -> None:
    assert Config().with_overrides(flatten(config)) == config


def test_every_setting_is_described() -> None:
    undescribed = [key for key, field in known_fields().items() if not field.description]
    assert undescribed == []


def test_settings_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValidationError):
        Config().optim.lr = 1.0


def test_an_override_changes_its_key_alone() -> None:
    changed = Config().with_overrides({"optim.lr": 1})
    assert changed.optim == OptimConfig(lr=1.0)
    assert flatten(changed) == flatten(Config()) | {"optim.lr": 1.0}


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("optim.lrr", 1, "optim.lrr: no such setting; did you mean optim.lr?"),
        ("optm.lr", 1, "optm.lr: no such setting; did you mean optim.lr?"),
        ("lr", 1, "lr: no such setting; did you mean optim.lr?"),
        ("seed", 1, "seed: no such setting; did you mean train.seed or search.seed?"),
        ("wholly.new", 1, "wholly.new: no such setting; --help lists them all"),
        (
            "data.use",
            "train+validation",
            "data.use: not available yet (comes with the hand-over on all images); remove it",
        ),
        (
            "search.confirm_top",
            -1,
            "search.confirm_top: not allowed (-1); use a whole number from 0 to 1000000000",
        ),
        (
            "search.confirm_seeds",
            0,
            "search.confirm_seeds: not allowed (0); use a whole number from 1 to 1000000000",
        ),
        ("resources.dashboard", 1, "resources.dashboard: not allowed (1); use true or false"),
        (
            "resources.cpus_per_trial",
            0,
            "resources.cpus_per_trial: not allowed (0); use a number above 0 or auto",
        ),
        (
            "resources.cpus_per_trial",
            "all",
            "resources.cpus_per_trial: not allowed (all); use a number above 0 or auto",
        ),
        ("optim.lr", 0, "optim.lr: not allowed (0); use a number above 0"),
        (
            "optim.lr",
            "1e-3",
            "optim.lr: not allowed (1e-3); use a number above 0, without quotes",
        ),
        ("optim.lr", True, "optim.lr: not allowed (true); use a number above 0"),
        ("optim.lr", float("nan"), "optim.lr: not allowed (nan); use a number above 0"),
        ("optim.lr", float("inf"), "optim.lr: not allowed (inf); use a number above 0"),
        (
            "optim.momentum",
            1.0,
            "optim.momentum: not allowed (1.0); use a number from 0 and below 1",
        ),
        ("train.clip_norm", -1, "train.clip_norm: not allowed (-1); use a number above 0 or null"),
        (
            "train.epochs",
            3.0,
            "train.epochs: not allowed (3.0); use a whole number from 1 to 1000000000",
        ),
        ("augment.flip", 1, "augment.flip: not allowed (1); use true or false"),
        (
            "train.seed",
            2**31 - 1,
            "train.seed: 2147483647 leaves no room for 2 confirm seeds above it; "
            "use at most 2147483645",
        ),
        (
            "search.trials",
            0,
            "search.trials: not allowed (0); use a whole number from 1 to 1000000000",
        ),
        (
            "search.metric",
            "top_1",
            "search.metric: not allowed (top_1); use top1, top5, balanced_top1 or validation_loss",
        ),
        (
            "search.sampler",
            "bohb",
            "search.sampler: not allowed (bohb); use auto, rung_gp, tpe, gp, cmaes, random, qmc or "
            "grid",
        ),
        (
            "data.source",
            "zip",
            "data.source: not allowed (zip); use generated, folder, csv, list or torchvision",
        ),
        (
            "augment.flip",
            "true",
            "augment.flip: not allowed (true); use true or false, without quotes",
        ),
        (
            "search.keep_best",
            0,
            "search.keep_best: not allowed (0); use a whole number from 1 to 1000000000",
        ),
        (
            "search.fail_fast",
            True,
            "search.fail_fast: no such setting; did you mean search.max_failures?",
        ),
        (
            "space.lr",
            1,
            "space.lr: no such setting; did you mean optim.lr?",
        ),
        ("mining.ratio", -1, "mining.ratio: not allowed (-1); use 0 or a number from 1 up"),
        ("mining.ratio", 0.5, "mining.ratio: not allowed (0.5); use 0 or a number from 1 up"),
        ("mining.ratio", math.nan, "mining.ratio: not allowed (nan); use 0 or a number from 1 up"),
        (
            "mining.start_fraction",
            0.9,
            "mining.end_fraction: 0.875 is not above mining.start_fraction (0.9); "
            "use more than 0.9",
        ),
        (
            "resources.gpus_per_trial",
            2,
            "resources.gpus_per_trial: a trial on several GPUs comes with a later version (2); "
            "use a number from 0 to 1 or auto",
        ),
        ("model.name", "", "model.name: not allowed (''); use text"),
        ("model.name", "a\nb", r"model.name: not allowed (a\nb); use text"),
        (
            "data.cache_root",
            7,
            "data.cache_root: not allowed (7); "
            "use text or null (in quotes where it looks like something else)",
        ),
        (
            "search.grace_epochs",
            10,
            "search.grace_epochs: 10 is above train.epochs (9); use at most 9",
        ),
        (
            "train.report_epochs",
            10,
            "train.report_epochs: 10 is above train.epochs (9); use at most 9",
        ),
        (
            "train.report_epochs",
            0.4,
            "train.report_epochs: 0.4 does not divide search.grace_epochs (1); "
            "use 1 or 1 divided by a whole number",
        ),
        (
            "train.accumulate_steps",
            129,
            "train.accumulate_steps: 129 is above train.batch_size (128); use at most 128",
        ),
        (
            "data.source",
            "folder",
            "data.root: missing (null); data.source=folder needs a folder, data.root=FOLDER",
        ),
        (
            "data.root",
            "/images",
            "data.root: not used by data.source=generated (/images); "
            "add data.source=folder or data.root=null",
        ),
        (
            "data.source",
            "csv",
            "data.root: missing (null); data.source=csv needs a folder, data.root=FOLDER",
        ),
        (
            "data.train_labels",
            "labels.csv",
            "data.train_labels: not used by data.source=generated (labels.csv); "
            "add data.source=csv or data.source=list, or data.train_labels=null",
        ),
        (
            "data.dataset",
            "CIFAR10",
            "data.dataset: not used by data.source=generated (CIFAR10); "
            "add data.source=torchvision or data.dataset=null",
        ),
        (
            "data.download",
            True,
            "data.download: not used by data.source=generated (true); "
            "add data.source=torchvision or data.download=false",
        ),
    ],
)
def test_a_mistake_is_told_in_one_line(key: str, value: object, line: str) -> None:
    assert refusals({key: value}) == (line,)


def test_all_mistakes_are_told_together_and_none_follows_from_another() -> None:
    assert refusals(
        {"optim.lrr": 1, "train.epochs": 0, "search.grace_epochs": 99, "data.root": "x"}
    ) == (
        "train.epochs: not allowed (0); use a whole number from 1 to 1000000000",
        "optim.lrr: no such setting; did you mean optim.lr?",
        "data.root: not used by data.source=generated (x); "
        "add data.source=folder or data.root=null",
    )


def test_a_set_of_torchvision_needs_its_name_and_a_folder() -> None:
    assert refusals({"data.source": "torchvision"}) == (
        "data.root: missing (null); data.source=torchvision needs a folder, data.root=FOLDER",
        "data.dataset: missing (null); "
        "data.source=torchvision needs the name of a set, data.dataset=CIFAR10",
    )


def test_a_long_value_is_cut_in_its_line() -> None:
    assert refusals({"augment.crop": "x" * 500}) == (
        f"augment.crop: not allowed ({'x' * 80}…); use none, pad or resized",
    )


@pytest.mark.parametrize(("epochs", "grace"), [(1, 1), (9, 1), (34, 2), (90, 5)])
def test_automatic_grace_is_a_seventeenth_of_the_run(epochs: int, grace: float) -> None:
    config = Config().with_overrides({"train.epochs": epochs})
    assert (config.grace_epochs, config.report_epochs) == (grace, grace)


def test_reports_fall_due_by_the_images_of_an_epoch() -> None:
    config = Config().with_overrides({"train.report_epochs": 0.5})
    assert [config.report_samples(num_images) for num_images in (1, 5, 1000)] == [1, 2, 500]
    assert Config().report_samples(1000) == 1000


def test_reports_may_be_closer_than_rungs() -> None:
    config = Config().with_overrides({"search.grace_epochs": 3, "train.report_epochs": 0.3})
    assert (config.grace_epochs, config.report_epochs) == (3, 0.3)


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("top1", "maximize"),
        ("top5", "maximize"),
        ("balanced_top1", "maximize"),
        ("validation_loss", "minimize"),
    ],
)
def test_the_direction_follows_from_the_metric(metric: str, direction: str) -> None:
    assert Config().with_overrides({"search.metric": metric}).search.direction == direction
