"""All settings of a run as one frozen model, and the one way to read, change and check them.

A setting is known by its dotted key (``optim.lr``) in files, on the command line and in studies.
`Config.with_overrides` is the one way to change settings, and checks them all.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from tuner.errors import SettingsError
from tuner.settings.checks import (
    Problem,
    find_conflicts,
    grace_epochs,
    unknown_key,
    wrong_value,
)
from tuner.settings.sections import (
    AugmentConfig,
    DataConfig,
    LoaderConfig,
    MiningConfig,
    ModelConfig,
    OptimConfig,
    ResourcesConfig,
    SearchConfig,
    Section,
    TrainConfig,
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
