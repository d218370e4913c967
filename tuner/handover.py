"""What a finished run leaves for others: `best.yaml` and the model folder around it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from tuner.data.augment import MEAN, STD, stored_size_px
from tuner.data.index import ImageIndex
from tuner.data.mining import hard_positions
from tuner.files import csv_line, write_json, write_text
from tuner.planning.environment import git_commit, processor, versions
from tuner.settings.config import Config
from tuner.settings.text import read_yaml, yaml_text
from tuner.training.checkpoint import save_weights
from tuner.training.confusion import describe_classes
from tuner.training.own_model import find_code, is_own, look_in

RESULT_KEYS = (
    "top1",
    "top5",
    "balanced_top1",
    "validation_loss",
    "num_correct",
    "num_evaluated",
    "epoch",
    "samples_seen",
    "micro_batch_size",
)


def describe_winner(
    config: Config,
    report: Mapping[str, Any],
    *,
    classes: Sequence[str],
    data_fingerprint: str,
    threads: int,
    device: str,
    trial_number: int | None = None,
    weights_sha256: str | None = None,
) -> dict[str, Any]:
    """Returns all that is needed to train a configuration again and to compare: `best.yaml`.

    Args:
        config: Every setting it was trained with.
        report: The report that made it the best, whose weights are kept.
        classes: Class names in the order of the model's outputs.
        data_fingerprint: Of the images it was trained and scored on.
        threads: Torch threads; with another number the bits differ.
        device: Kind of device, `cpu` or `cuda`.
        trial_number: Its number in a search.
        weights_sha256: Of the file of first weights; None without one.
    """
    result = {key: report[key] for key in RESULT_KEYS if key in report}  # of an older version
    result = {"metric": config.search.metric} | result
    if trial_number is not None:
        result["trial_number"] = trial_number
    code = describe_code(config.model.name)
    return {
        "result": result,
        "settings": config.model_dump(),
        "classes": list(classes),
        "data_fingerprint": data_fingerprint,
        **({"model_code": code} if code else {}),
        **({"weights_sha256": weights_sha256} if weights_sha256 else {}),
        "environment": {
            "threads": threads,
            "device": device,
            "processor": processor(),
            "versions": versions(),
            "git_commit": git_commit(),
        },
    }


def describe_code(model_name: str) -> dict[str, Any] | None:
    """Returns where the code of a user's own model lies, and its hash; None for other models.

    Python has to look for it in `folder`; null is where it is installed.
    """
    code = find_code(model_name) if is_own(model_name) else None
    return asdict(code) if code else None


def find_recorded_code(recorded: Mapping[str, Any], model_name: str) -> None:
    """Lets Python find the code of the model that a `best.yaml` records, where it was then.

    To be called before the model is built; nothing happens for a model of another name.

    Raises:
        SettingsError: It is gone from there, and nowhere else.
    """
    code = recorded.get("model_code")
    if code and code["folder"] and recorded["settings"]["model"]["name"] == model_name:
        look_in(code["folder"], model_name)


def describe_evaluation(
    checkpoint: Mapping[str, Any] | None, validation: ImageIndex
) -> dict[str, Any] | None:
    """Returns what the report of a checkpoint found of each class, as plain values.

    None where the checkpoint is gone, or was written by a version that kept no predictions.
    """
    predictions = (checkpoint or {}).get("predictions")
    if predictions is None:
        return None
    return describe_classes(validation.classes, validation.labels, predictions.numpy())


def is_handed_over(run_folder: Path, winner: Mapping[str, Any]) -> bool:
    """Says whether `best/` holds the weights of this result already."""
    best_yaml, weights = (run_folder / "best" / name for name in ("best.yaml", "model.safetensors"))
    if not (best_yaml.exists() and weights.exists()):
        return False
    before = read_yaml(best_yaml)
    if not before.get("result"):
        return False
    result = {key: winner["result"].get(key) for key in before["result"]}  # of an older version
    seeds = [each["settings"]["train"]["seed"] for each in (before, winner)]
    return bool(before["result"] == result and seeds[0] == seeds[1])


def write_found(run_folder: Path, found: Mapping[str, Any]) -> None:
    """Writes into `best.yaml`, also that in `best/`, what more has been found of the winner there.

    All else stays, the environment too: this machine and these versions may be others by now.
    """
    before = read_yaml(run_folder / "best" / "best.yaml")
    winner = {**before, **found}
    for path in (run_folder / "best" / "best.yaml", run_folder / "best.yaml"):
        if not path.exists() or read_yaml(path) != winner:
            write_best_yaml(path, winner)


def write_best_yaml(path: Path, winner: Mapping[str, Any]) -> None:
    """Writes `best.yaml`, whole or not at all."""
    head = f"# Trains this configuration again: python -m tuner.retrain config={path.name}\n"
    write_text(path, head + yaml_text(winner))


def write_model_folder(
    folder: Path,
    weights: Mapping[str, Tensor],
    winner: Mapping[str, Any],
    config: Config,
    mining_labels: str | None = None,
) -> None:
    """Writes the model folder: weights, class names, preprocessing and `best.yaml`.

    With `mining_labels` the text of `mining_label.csv`. Each file is replaced whole; weights come
    last, so a folder with weights is complete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    forget_weights(folder)
    (folder / "mining_label.csv").unlink(missing_ok=True)
    if mining_labels is not None:
        write_text(folder / "mining_label.csv", mining_labels)
    write_best_yaml(folder / "best.yaml", winner)
    write_json(folder / "classes.json", winner["classes"])
    write_json(folder / "preprocess.json", describe_preprocessing(config))
    save_weights(weights, folder / "model.safetensors")


def describe_hard_images(
    checkpoint: Mapping[str, Any], train: ImageIndex, config: Config
) -> str | None:
    """Returns the images of highest loss, the hardest first, as `data.mining_labels` reads them.

    None where the run did not mine.
    """
    mining = checkpoint.get("mining")  # came with a later version
    if mining is None:
        return None
    losses = mining["losses"].numpy()
    rows = [("path", "label", "loss")]
    for position in hard_positions(losses, train.labels, config.mining.hard_fraction):
        name = train.classes[train.labels[position]]
        rows.append((train.path(position), name, f"{losses[position]:.6g}"))
    return "".join(map(csv_line, rows))


def forget_weights(folder: Path) -> None:
    """Removes the weights of a model folder: what is written beside them next is another's."""
    (folder / "model.safetensors").unlink(missing_ok=True)


def describe_preprocessing(config: Config) -> dict[str, Any]:
    """Returns how pixels become the model's input, in the order it is done."""
    return {
        "color": "RGB, EXIF orientation applied",
        "crop_to_square": "centre",
        "resize_px": stored_size_px(config.augment.crop, config.data.image_size),
        "crop_px": config.data.image_size,
        "scale": 1 / 255,
        "mean": list(MEAN),
        "std": list(STD),
    }
