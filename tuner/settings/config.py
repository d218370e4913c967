"""Every setting that exists: its type, unit, default and bounds, as frozen models.

A setting is known by its dotted key (``optim.lr``) in files, on the command line and in studies.
`Config.with_overrides` is the one way to change settings, and checks them all.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.fields import FieldInfo

from tuner.errors import SettingsError
from tuner.settings.checks import (
    LARGEST_SEED,
    Problem,
    find_conflicts,
    grace_epochs,
    unknown_key,
    wrong_value,
)

Text = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$")]
Count = Annotated[int, Ge(1), Le(10**9)]
CountOrZero = Annotated[int, Ge(0), Le(10**9)]
CountFromTwo = Annotated[int, Ge(2), Le(10**9)]
Epochs = Annotated[float, Ge(0.001)]
Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
Share = Annotated[float, Ge(0), Lt(1)]
Seed = Annotated[int, Ge(0), Le(LARGEST_SEED)]


class Section(BaseModel):
    """One group of settings, the part of a dotted key before the dot."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class DataConfig(Section):
    """Where images come from and how they are read."""

    source: Literal["generated", "folder", "csv", "list", "torchvision"] = Field(
        default="generated",
        description="generated photo-like set, a folder of class folders, a folder of images "
        "with labels in CSV files or in lines of `path label`, or a set of torchvision by name",
    )
    root: Text | None = Field(
        default=None,
        description="folder of the images, none may lie outside of it; of torchvision's download",
    )
    train_labels: Text | None = Field(
        default=None,
        description="label file of training, relative to data.root; null is "
        "label/train_label.csv for csv, train.txt for list",
    )
    validation_labels: Text | None = Field(
        default=None,
        description="that of validation; null is label/valid_label.csv or val.txt where there is "
        "one, else validation is drawn from training",
    )
    dataset: Text | None = Field(
        default=None,
        description="classification set in torchvision.datasets, such as CIFAR10, CIFAR100, "
        "FashionMNIST, Imagenette or Flowers102, where source is torchvision",
    )
    download: bool = Field(
        default=False, description="let torchvision download that set to data.root if it is missing"
    )
    validation_fraction: Annotated[float, Gt(0), Lt(1)] = Field(
        default=0.2,
        description="share of each class held out where the images have no validation split",
    )
    split_seed: Seed = Field(default=0, description="seed of that draw, and of data.limit")
    limit: Count | None = Field(default=None, description="images used per split; null is all")
    image_size: Annotated[int, Ge(8), Le(4096)] = Field(
        default=64, description="side of the square the model sees, pixels"
    )
    decoder: Literal["simplejpeg", "cv2", "pil"] = Field(
        default="simplejpeg",
        description="library that decodes JPEGs, Pillow the rest; all give the same pixels",
    )
    on_bad_image: Literal["fail", "skip"] = Field(
        default="fail", description="what an unreadable image does: end the run, or be left out"
    )
    cache: Literal["auto", "none", "decoded", "device"] = Field(
        default="auto",
        description="decoded images, kept on disk for all trials: auto where half of the disk "
        "that checkpoints leave free and of memory hold them, decoded and device always; on the "
        "GPU, too, by auto and device, where a quarter of the trial's share holds them",
    )
    cache_root: Text | None = Field(
        default=None,
        description="folder of the generated set, decoded images and remembered speeds; "
        "null is <output>/.cache",
    )


class AugmentConfig(Section):
    """Random changes to training images."""

    crop: Literal["none", "pad", "resized"] = Field(
        default="none", description="random crop: of the padded image, or of a random size"
    )
    flip: bool = Field(default=False, description="mirror half of the images left to right")
    rotate90: bool = Field(
        default=False, description="turn each image by 0, 90, 180 or 270 degrees"
    )


class LoaderConfig(Section):
    """Processes that read images; they change the speed, never the result."""

    num_workers: CountOrZero = Field(
        default=0,
        description="reading processes per trial, where images are not decoded beforehand; 0 reads "
        "inline",
    )
    prefetch_factor: Count = Field(default=2, description="batches read ahead of training")


class ModelConfig(Section):
    """The network."""

    name: Text = Field(
        default="resnet8_s2",
        description="lenet, resnet8, resnet8_s2, resnet20, resnet20_s2, a torchvision classifier, "
        "timm/NAME (needs the extra timm), or package.module:function of your own, called with the "
        "class count",
    )
    weights: Text | None = Field(
        default=None,
        description="file of first weights, safetensors or a state dict; what fits by name and "
        "shape is taken, at least half; null draws all from train.seed",
    )
    ghost_batch_size: CountFromTwo = Field(
        default=32, description="images over which BatchNorm takes its statistics"
    )


class OptimConfig(Section):
    """The optimizer and its learning rate over the run."""

    name: Literal["sgd", "adam", "adamw"] = Field(
        default="sgd", description="optimizer (sgd: Nesterov)"
    )
    lr: Positive = Field(default=0.1, description="peak learning rate, per optimizer step")
    momentum: Share = Field(
        default=0.9, description="momentum of sgd, first beta of adam and adamw"
    )
    weight_decay: NotNegative = Field(
        default=5e-4, description="decay of weights, not of biases and norms"
    )
    schedule: Literal["cosine", "constant", "step"] = Field(
        default="cosine", description="course of the learning rate after the warm-up"
    )
    warmup_fraction: Share = Field(
        default=0.1, description="share of the run the rate takes to its peak"
    )


class TrainConfig(Section):
    """One training run."""

    epochs: Count = Field(default=9, description="passes over the training images")
    report_epochs: Epochs | None = Field(
        default=None, description="epochs between evaluations; null is search.grace_epochs"
    )
    batch_size: Count = Field(default=128, description="images per optimizer step")
    accumulate_steps: Count | Literal["auto"] = Field(
        default="auto",
        description="slices a step is cut into, to save memory; auto is 1; on a GPU slices are "
        "halved until a tenth of its memory stays free",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        default="auto", description="arithmetic; auto is fp32 on a CPU, bf16 or fp16 on a GPU"
    )
    label_smoothing: Share = Field(
        default=0.0, description="share of the target spread over all classes"
    )
    clip_norm: Positive | None = Field(
        default=None, description="largest gradient norm; null is no limit"
    )
    seed: Seed = Field(default=0, description="seed of weights, order and augmentation")


class MiningConfig(Section):
    """Training on hard images more often."""

    ratio: Literal[0] = Field(
        default=0, description="images of a mining epoch per hard image; 0 is off"
    )


class SearchConfig(Section):
    """How settings are proposed, compared and stopped."""

    trials: Count = Field(default=12, description="configurations tried")
    metric: Literal["top1", "top5", "validation_loss"] = Field(
        default="top1", description="what decides"
    )
    sampler: Literal["auto", "tpe", "random", "qmc"] = Field(
        default="auto", description="how the next configuration is proposed; auto is tpe"
    )
    scheduler: Literal["asha", "asha_stopping", "none"] = Field(
        default="asha", description="what ends poor trials early: promotion, stopping, or nothing"
    )
    grace_epochs: Epochs | Literal["auto"] = Field(
        default="auto",
        description="epochs before a trial may be stopped; auto is train.epochs / 17",
    )
    reduction_factor: CountFromTwo = Field(
        default=3, description="one in this many trials goes on from each rung"
    )
    max_concurrent: Count | Literal["auto"] = Field(
        default="auto", description="trials side by side; auto is as many as the machine holds"
    )
    time_budget_s: Positive | None = Field(
        default=None,
        description="seconds of the search stage, over all starts; confirm comes on top",
    )
    max_failures: CountOrZero = Field(default=2, description="times a failed trial is tried again")
    max_restarts: CountOrZero = Field(default=2, description="times a lost Ray is started again")
    stall_timeout_s: Annotated[float, Ge(10)] | None = Field(
        default=600.0,
        description="seconds without a batch after which a trial is ended as stalled",
    )
    seed: Seed = Field(default=0, description="seed of the proposals")
    points: Text | None = Field(
        default=None,
        description="folder of an earlier search: its best settings come first, at most a quarter "
        "of the trials; read when the search begins",
    )
    keep_best: Count = Field(
        default=5, description="best trials whose checkpoints stay once they have ended"
    )
    confirm_top: CountOrZero = Field(
        default=2, description="best configurations trained again on fresh seeds; 0 is none"
    )
    confirm_seeds: Count = Field(
        default=2, description="fresh seeds for each of them: train.seed + 1, + 2 and so on"
    )

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """Which way the metric improves."""
        return "minimize" if self.metric == "validation_loss" else "maximize"


class ResourcesConfig(Section):
    """What one trial gets of the machine."""

    cpus_per_trial: Positive | Literal["auto"] = Field(
        default="auto",
        description="CPUs per trial; its torch threads, rounded down; auto shares out all of them",
    )
    gpus_per_trial: Annotated[float, Ge(0), Le(1)] | Literal["auto"] = Field(
        default="auto",
        description="GPUs per trial; auto is the share that trains most images/s, 0 without a GPU",
    )
    disk_budget_gb: Positive | None = Field(
        default=None,
        description="GB that all checkpoints may take; null is nine tenths of what is free",
    )
    dashboard: bool = Field(
        default=False, description="start Ray's dashboard, on this machine's loopback alone"
    )


class Config(Section):
    """All settings of one training run and of the search around it."""

    data: DataConfig = DataConfig()
    augment: AugmentConfig = AugmentConfig()
    loader: LoaderConfig = LoaderConfig()
    model: ModelConfig = ModelConfig()
    optim: OptimConfig = OptimConfig()
    train: TrainConfig = TrainConfig()
    mining: MiningConfig = MiningConfig()
    search: SearchConfig = SearchConfig()
    resources: ResourcesConfig = ResourcesConfig()

    @property
    def grace_epochs(self) -> float:
        """The setting `search.grace_epochs` with ``auto`` worked out."""
        return grace_epochs(self.search.grace_epochs, self.train.epochs)

    @property
    def report_epochs(self) -> float:
        """The setting `train.report_epochs` with ``null`` worked out."""
        return self.train.report_epochs or self.grace_epochs

    def report_samples(self, num_images: int) -> int:
        """Images between two reports, where an epoch has `num_images`."""
        return max(1, round(self.report_epochs * num_images))

    def with_overrides(self, overrides: Mapping[str, Any]) -> "Config":
        """These settings with some changed, all of them checked.

        Args:
            overrides: Values by dotted key, such as ``{"optim.lr": 0.1}``.

        Raises:
            SettingsError: One line for each unknown key, wrong value and conflict.
        """
        values = flatten(self) | dict(overrides)
        if problems := find_problems(values):
            raise SettingsError(*(problem.line for problem in problems))
        return Config.model_validate(_nested(values))

    def to_json(self) -> str:
        """The settings as one JSON text, that `from_json` reads back equal."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str) -> "Config":
        """The settings that `to_json` wrote, checked again.

        Raises:
            SettingsError: Where a key or value of the text is not allowed now.
        """
        sections: dict[str, dict[str, Any]] = json.loads(text)
        return cls().with_overrides(
            {
                f"{name}.{key}": value
                for name, keys in sections.items()
                for key, value in keys.items()
            }
        )


def flatten(config: Config) -> dict[str, Any]:
    """All values by dotted key, in the order of the models."""
    sections: dict[str, dict[str, Any]] = config.model_dump()
    return {
        f"{name}.{key}": value for name, keys in sections.items() for key, value in keys.items()
    }


def to_overrides(config: Config) -> list[str]:
    """The settings as ``key=value`` texts, that the command line reads back equal."""
    return [f"{key}={_as_argument(value)}" for key, value in flatten(config).items()]


@cache
def known_fields() -> Mapping[str, FieldInfo]:
    """Every setting's declaration by dotted key."""
    return {
        f"{section}.{name}": field
        for section, holder in Config.model_fields.items()
        for name, field in type(holder.default).model_fields.items()
    }


def find_problems(
    values: Mapping[str, Any], searched: Mapping[str, Sequence[Any]] | None = None
) -> list[Problem]:
    """Every mistake in settings: unknown keys, wrong values, conflicts.

    Args:
        values: By dotted key; a key not given counts with its default.
        searched: Valid values a key may have as well, each of which must fit the others.
    """
    fields = known_fields()
    problems = find_wrong_values(values)
    refused = {key for problem in problems for key in problem.keys}
    possible = {
        key: (values.get(key, field.default), *(searched or {}).get(key, ()))
        for key, field in fields.items()
        if key not in refused
    }
    return [*problems, *find_conflicts(possible)]


def find_wrong_values(values: Mapping[str, Any]) -> list[Problem]:
    """The unknown keys and the values that their own key does not take."""
    fields = known_fields()
    known = {key: value for key, value in values.items() if key in fields}
    wrong: dict[str, str] = {}
    try:
        Config.model_validate(_nested(known))
    except ValidationError as error:
        for each in error.errors():
            # A union reports each of its members; the first two parts of a place are the key.
            key = ".".join(map(str, each["loc"][:2]))
            wrong[key] = wrong_value(key, fields[key], values[key])
    lines = {key: wrong.get(key) if key in fields else unknown_key(key, fields) for key in values}
    return [Problem((key,), line) for key, line in lines.items() if line]


def _nested(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    sections: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, name = key.split(".")
        sections.setdefault(section, {})[name] = value
    return sections


def _as_argument(value: Any) -> str:
    # Text goes as it is; in quotes where it would be read as null or as quoted text.
    if isinstance(value, str) and value != "null" and not value.startswith('"'):
        return value
    return json.dumps(value)
