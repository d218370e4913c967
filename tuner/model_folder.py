"""A model folder read back: the trained model, its classes and how its images are prepared."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tuner.assemble import build_net
from tuner.errors import SettingsError
from tuner.handover import describe_preprocessing, find_recorded_code
from tuner.settings.config import Config
from tuner.settings.load import load_settings
from tuner.settings.text import read_yaml
from tuner.settings.wording import shown
from tuner.training.checkpoint import load_weights


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """What a model folder holds.

    Attributes:
        model: In evaluation mode, on the CPU.
        weights: Its state as the file holds it.
        classes: Names, in the order of its outputs.
        preprocessing: As `preprocess.json` says.
        winner: The content of `best.yaml`.
        config: The settings in it.
    """

    folder: Path
    model: nn.Module
    weights: Mapping[str, Tensor]
    classes: tuple[str, ...]
    preprocessing: Mapping[str, Any]
    winner: Mapping[str, Any]
    config: Config


def load_model_folder(folder: Path) -> ModelFolder:
    """Returns the model of a folder that holds all its files, each checked against the others.

    Raises:
        SettingsError: `best.yaml`, the classes or the preprocessing are damaged, or do not fit.
        CheckpointError: The weights are damaged, or are those of another model.
    """
    winner = read_yaml(folder / "best.yaml")
    settings = winner.get("settings")
    if not isinstance(settings, dict) or not isinstance(winner.get("classes"), list):
        raise SettingsError(
            f"{folder / 'best.yaml'}: not a best.yaml (settings or classes are missing); "
            "give the folder as a search or retrain wrote it"
        )
    config = load_settings(settings, folder / "best.yaml", [])
    classes = _read_classes(folder / "classes.json", winner["classes"])
    preprocessing = _read_preprocessing(folder / "preprocess.json", describe_preprocessing(config))
    find_recorded_code(winner, config.model.name)
    with torch.random.fork_rng(devices=[]):  # drawing weights that are replaced is nobody's draw
        model = build_net(config, len(classes))
    weights = load_weights(folder / "model.safetensors", model, config.model.name, len(classes))
    return ModelFolder(
        folder=folder,
        model=model.eval(),
        weights=weights,
        classes=classes,
        preprocessing=preprocessing,
        winner=winner,
        config=config,
    )


def _read_classes(path: Path, recorded: Sequence[str]) -> tuple[str, ...]:
    classes = _read_json(path)
    is_list = isinstance(classes, list) and all(isinstance(name, str) for name in classes)
    if not is_list or len(set(classes)) != len(classes) or len(classes) < 2:
        raise SettingsError(f"{path}: not a list of class names; write the classes of best.yaml")
    if classes != list(recorded):
        raise SettingsError(
            f"{path}: other classes than in best.yaml ({len(classes)} and {len(recorded)}); "
            "the files of the folder belong to different models"
        )
    return tuple(classes)


def _read_preprocessing(path: Path, recorded: Mapping[str, Any]) -> Mapping[str, Any]:
    found = _read_json(path)
    if not isinstance(found, dict):
        raise SettingsError(f"{path}: not a mapping ({shown(found)}); take it from a whole copy")
    for key, wanted in recorded.items():
        if found.get(key) != wanted:
            raise SettingsError(
                f"{path}: {key} does not fit best.yaml ({shown(found.get(key))}, not "
                f"{shown(wanted)}); the files of the folder belong to different models"
            )
    return found


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:  # no UTF-8, no JSON
        raise SettingsError(f"{path}: is damaged (not JSON); take it from a whole copy") from error
