"""The models that a search may train: each built and looked at once, and what weights it gets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.assemble import check_model
from tuner.files import write_json
from tuner.reporting.terminal import say_under
from tuner.settings.config import Config, flatten
from tuner.settings.identity import WEIGHTS_KEY
from tuner.settings.wording import shown_path
from tuner.stages.opening import Search
from tuner.training.weights import WeightsFit

KEYS = ("model.name", "model.weights")


@dataclass(frozen=True, slots=True)
class FittedWeights:
    """What a weights file gives one of the models."""

    model: str
    path: str
    fit: WeightsFit


def check_networks(search: Search, num_classes: int) -> tuple[FittedWeights, ...]:
    """Returns what weights files give the models of the space, all of which are checked.

    Raises:
        SettingsError: There is no such model, it cannot take such images or gives no score for
            each class; or a file cannot be read or does not fit.
    """
    found = []
    for config in combinations(search):
        fit = check_model(config, num_classes)
        if fit is not None:
            found.append(FittedWeights(config.model.name, config.model.weights or "", fit))
    return tuple(found)


def combinations(search: Search) -> Iterator[Config]:
    """Yields settings for each model and weights file that trials may have together."""
    fixed = flatten(search.config)
    for name in search.possible_values("model.name"):
        for weights in search.possible_values("model.weights"):
            values = {"model.name": name, "model.weights": weights}
            for key in KEYS:  # what is not searched there has its fixed value
                searched = search.space.parameters.get(key)
                when = dict(searched.when) if searched else {}
                if any(each in when and when[each] != values[each] for each in KEYS):
                    values[key] = fixed[key]
            yield search.config.with_overrides(values)


def recorded_sha256(search: Search, settings: Mapping[str, Any], path: str | None) -> str | None:
    """Returns the SHA-256 of a weights file as the search was begun with it; None without one."""
    recorded = settings.get(WEIGHTS_KEY)
    if path is None or not isinstance(recorded, list):
        return recorded if path else None
    sha256: str | None = recorded[search.possible_values("model.weights").index(path)]
    return sha256


def say_weights(fitted: tuple[FittedWeights, ...]) -> None:
    """Prints how much of each file fits, and the first names of what does not."""
    if fitted:
        say_under("weights", *map(told, fitted))


def told(fitted: FittedWeights) -> str:
    """Returns how much of a file fits, for people."""
    fit = fitted.fit
    path = shown_path(Path(fitted.path))
    return f"{path}: {fit.loaded_share:.1%} of {fitted.model}'s parameters, {fit.told()}"


def write_fitted(path: Path, fitted: tuple[FittedWeights, ...]) -> None:
    """Writes the full lists as `weights.json`; nothing where no file is used."""
    if fitted:
        rows = [{"model": each.model, "path": each.path} | each.fit.to_plain() for each in fitted]
        write_json(path, rows)
