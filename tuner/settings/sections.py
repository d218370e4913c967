"""The groups of settings, each the part of a dotted key before the dot, as frozen models.

Every field has its type, unit, default and bounds; its description is the text of ``--help``.
"""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tuner.settings.checks import LARGEST_SEED

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
    mining_labels: Text | None = Field(
        default=None,
        description="label file of the images that are hard in the first mining epoch, a csv or "
        "lines of `path label`; null is label/mining_label.csv in data.root for csv where there is "
        "one",
    )
    test_root: Text | None = Field(
        default=None,
        description="folder of class folders whose images choose nothing and score the winner "
        "alone, once; null is none",
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
    ema_decay: Annotated[float, Gt(0), Lt(1)] | None = Field(
        default=None,
        description="share that a running average of the weights keeps at each step, less in the "
        "first ones; the average is what is evaluated and handed over; null is none",
    )
    seed: Seed = Field(default=0, description="seed of weights, order and augmentation")


class MiningConfig(Section):
    """Training on hard images more often."""

    ratio: Literal[0] | Annotated[float, Ge(1)] = Field(
        default=0,
        description="images of a mining epoch per hard image, the others drawn anew each time; "
        "1 is hard images alone, 0 is off",
    )
    hard_fraction: Annotated[float, Gt(0), Le(1)] = Field(
        default=0.25,
        description="share of training images that are hard: the highest losses when last trained "
        "on, at least one of each class",
    )
    start_fraction: Share = Field(
        default=0.5, description="share of the run before the first mining epoch"
    )
    end_fraction: Annotated[float, Gt(0), Le(1)] = Field(
        default=0.875, description="share of the run after which no mining epoch begins"
    )


class SearchConfig(Section):
    """How settings are proposed, compared and stopped."""

    trials: Count = Field(default=12, description="configurations tried")
    metric: Literal["top1", "top5", "balanced_top1", "validation_loss"] = Field(
        default="top1",
        description="what decides; balanced_top1 is the mean of top-1 over the classes, which "
        "counts a rare one like every other",
    )
    sampler: Literal["auto", "rung_gp", "tpe", "gp", "cmaes", "random", "qmc", "grid"] = Field(
        default="auto",
        description="how the next configuration is proposed: rung_gp, which is auto, by a model of "
        "scores at all lengths; tpe, gp, cmaes (needs the extra cmaes, draws choices at random), "
        "random, qmc and grid (every combination of choices) as in Optuna",
    )
    scheduler: Literal["asha", "asha_stopping", "none"] = Field(
        default="asha", description="what ends poor trials early: promotion, stopping, or nothing"
    )
    grace_epochs: Epochs | Literal["auto"] = Field(
        default="auto",
        description="epochs before a trial may be stopped; auto is train.epochs / 17, and at each "
        "rung but the last before the end also until a trial there is better than guessing",
    )
    reduction_factor: CountFromTwo = Field(
        default=3, description="one in this many trials goes on from each rung"
    )
    max_concurrent: Count | Literal["auto"] = Field(
        default="auto", description="trials side by side; auto is as many as the machine holds"
    )
    time_budget_s: Positive | None = Field(
        default=None,
        description="seconds of the search stage, over all starts, in which no trial begins a rung "
        "that it would not reach; confirm comes on top",
    )
    patience: Count | None = Field(
        default=None,
        description="trials in a row without a better score at the highest rung reached, after "
        "which no other is begun; null is no end",
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
        description="what comes first in place of the defaults: the best settings of an earlier "
        "search, by its folder, at most a quarter of the trials; or all of a .csv, .yaml or .json "
        "file, by dotted key; read when the search begins",
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
