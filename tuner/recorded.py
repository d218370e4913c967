"""A `best.yaml` read again: what it must hold to be trained anew and compared with."""

from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Len
from pydantic import BaseModel, ValidationError

from tuner.errors import SettingsError
from tuner.settings.text import read_yaml


class RecordedResult(BaseModel, frozen=True, strict=True):
    """The score that is to come out again."""

    samples_seen: int
    epoch: float
    num_correct: int
    num_evaluated: int
    micro_batch_size: int | None = None


class RecordedEnvironment(BaseModel, frozen=True, strict=True):
    """What the bits of a result depend on."""

    threads: Annotated[int, Ge(1)]
    device: str
    processor: str
    versions: dict[str, str]


class RecordedCode(BaseModel, frozen=True, strict=True):
    """Where the code of a user's own model was."""

    folder: str | None
    sha256: str


class RecordedRuns(BaseModel, frozen=True, strict=True):
    """What confirm runs have said of one more run."""

    metric: str
    seeds: list[int]
    interval: Annotated[list[float], Len(2, 2)] | None = None


class Recorded(BaseModel, frozen=True, strict=True):
    """What a `best.yaml` must hold to be trained again and compared with."""

    settings: dict[str, Any]
    result: RecordedResult
    data_fingerprint: str
    classes: list[str] = []
    model_code: RecordedCode | None = None
    confirmed: RecordedRuns | None = None
    weights_sha256: str | None = None
    environment: RecordedEnvironment


def read_best(path: Path) -> dict[str, Any]:
    """Returns the content of a `best.yaml`.

    Raises:
        SettingsError: It is another file, or not whole.
    """
    content = read_yaml(path)
    try:
        Recorded.model_validate(content)
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise SettingsError(
            f"{path}: not a best.yaml ({place} is missing or wrong); "
            "give the file that a search or retrain wrote"
        ) from error
    return content
