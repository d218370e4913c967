"""`python -m tuner.predict`: what a trained model says of images, one row for each.

python -m tuner.predict model=results/imagenet_small/best images=/my/photos to=predictions.csv
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from tuner import cli
from tuner.errors import RunError, SettingsError
from tuner.files import not_written, remove_dead, replacing_unheld
from tuner.settings.places import find_model_folder, new_file
from tuner.settings.sections import Text
from tuner.settings.wording import shown

if TYPE_CHECKING:
    from tuner.data.inputs import Input, Inputs
    from tuner.data.loader import Loader, ReadBatch
    from tuner.model_folder import ModelFolder
    from tuner.reporting.predictions import FeatureFile, PredictionTable
    from tuner.training.predict import Predictor

IMAGES_PER_PROCESS = 100  # a further reading process would start for longer than it helps
PREFETCH_FACTOR = 2
NOT_FINITE = "the model gives it scores that are no numbers"


class PredictKeys(cli.Keys):
    """Writes a csv with a row for each image: its best classes, or why it cannot be read."""

    takes_settings: ClassVar[bool] = False

    model: Text = Field(description="model folder: best/ of a search, a retrain's, an export")
    images: Text = Field(
        description="folder of images, with all below it; or a file that names them: a csv with "
        "the columns image and label, or `path` or `path label` on each line"
    )
    root: Text | None = Field(
        default=None,
        description="folder that such a file's paths are relative to; null is where the file lies",
    )
    to: Text = Field(default="predictions.csv", description="csv to write; replaced where it is")
    features: bool = Field(
        default=False,
        description="also write the input of the last linear layer, float32 (images, features), "
        "beside the csv as .features.npy; the column feature_row says which row is whose",
    )


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be predicted by what.

    Attributes:
        model: The model folder.
        images: A folder or a file.
        root: Of the paths in that file; None is its folder.
    """

    model: Path
    images: Path
    root: Path | None
    to: Path
    has_features: bool


@dataclass(slots=True)
class Tally:
    """How it went so far."""

    num_images: int = 0
    num_unreadable: int = 0
    num_not_finite: int = 0
    num_labelled: int = 0
    num_correct: int = 0

    def told(self, to: Path) -> str:
        """Returns it for people, in one line."""
        parts = [f"{self.num_images:,} images", f"{self.num_unreadable:,} unreadable"]
        if self.num_not_finite:
            parts.append(f"{self.num_not_finite:,} without finite scores")
        if self.num_labelled:
            percent = 100 * self.num_correct / self.num_labelled
            parts.append(f"top-1 {percent:.1f} % ({self.num_correct}/{self.num_labelled})")
        return f"{to}: {', '.join(parts)}"


def main(keys: PredictKeys, overrides: list[str]) -> None:
    """Predicts, writes the csv whole or not at all, and says how it went."""
    task = read_task(keys)

    from tuner.data.input_tables import open_inputs
    from tuner.model_folder import load_model_folder
    from tuner.reporting.terminal import say

    loaded = load_model_folder(task.model)
    inputs = open_inputs(task.images, loaded.classes, task.root)
    for note in inputs.notes:
        say(note)
    try:
        tally = predict(task, loaded, inputs)
    except OSError as error:
        problem = not_written(task.to.parent, f"{task.to.name} cannot be written", error)
        raise RunError(problem) from error
    say(tally.told(Path(keys.to)))


def read_task(keys: PredictKeys) -> Task:
    """Returns the task, its files and folders found.

    Raises:
        SettingsError: One of them is missing or cannot be written.
    """
    model = find_model_folder("model", keys.model)
    images, root = Path(keys.images), Path(keys.root) if keys.root else None
    if not (images.is_dir() or images.is_file()):
        raise SettingsError(
            f"images: {shown(keys.images)} does not exist; give a folder of images, or a list or "
            "csv that names them"
        )
    if root and not root.is_dir():
        raise SettingsError(f"root: {shown(keys.root)} is no folder; give that of the images")
    to = new_file("to", keys.to)
    if to.resolve() == images.resolve():
        raise SettingsError(f"to: {shown(keys.to)} would replace images; give another file")
    return Task(model, images, root.absolute() if root else None, to, keys.features)


def predict(task: Task, loaded: "ModelFolder", inputs: "Inputs") -> Tally:
    """Writes `predictions.csv`, and the features where they are wanted; returns how it went."""
    from tuner.reporting.predictions import FEATURES_SUFFIX, FeatureFile, PredictionTable
    from tuner.reporting.terminal import counting
    from tuner.training.predict import NUM_TOP

    predictor, loader, batch_size = set_up(task, loaded, inputs.num_images)
    num_top = min(NUM_TOP, len(loaded.classes))
    tally = Tally()
    features_to = task.to.with_suffix(FEATURES_SUFFIX)
    for path in (task.to, features_to):
        remove_dead(path)
    with ExitStack() as stack:
        stack.enter_context(closing(loader))
        progress = stack.enter_context(counting("predicting"))
        # The table becomes its final name after the features that it is the index of.
        written = stack.enter_context(replacing_unheld(task.to))
        features = None
        if task.has_features:
            array = stack.enter_context(replacing_unheld(features_to))
            file = stack.enter_context(array.open("wb"))
            features = FeatureFile(file, predictor.num_features())
        text = stack.enter_context(written.open("w", encoding="utf-8", newline=""))
        table = PredictionTable(text, loaded.classes, num_top, has_features=task.has_features)
        for asked, read in read_inputs(loader, inputs.begin(), batch_size):
            write_batch(asked, read, predictor, table, features, tally)
            progress(tally.num_images, inputs.num_images)
        if features:
            features.finish()
    return tally


def set_up(task: Task, loaded: "ModelFolder", num_images: int) -> tuple["Predictor", "Loader", int]:
    """Returns the model on its device, what reads the images, and how many go at a time.

    All as in an evaluation, so that an image gets the same score.
    """
    import torch

    from tuner.data.loader import Loader
    from tuner.planning.machine import look
    from tuner.training.loop import EVALUATION_BATCH_SIZE, set_up_device
    from tuner.training.predict import Predictor
    from tuner.training.state import autocast_dtype

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    num_cpus = max(1, int(look().cpus))
    torch.set_num_threads(num_cpus)
    set_up_device(device)
    predictor = Predictor(
        loaded.model,
        device=device,
        autocast_dtype=autocast_dtype(loaded.config.train.precision, device),
        image_size_px=loaded.preprocessing["crop_px"],
        has_features=task.has_features,
    )
    loader = Loader(
        {},
        stored_px=loaded.preprocessing["resize_px"],
        decoder=loaded.config.data.decoder,
        # Never 0: an image may be the end of the process that reads it.
        num_workers=min(num_cpus, -(-num_images // IMAGES_PER_PROCESS)),
        prefetch_factor=PREFETCH_FACTOR,
        is_checked=False,
        is_pinned=device.type == "cuda",
    )
    return predictor, loader, EVALUATION_BATCH_SIZE[device.type]


def read_inputs(
    loader: "Loader", inputs: Iterator["Input"], batch_size: int
) -> Iterator[tuple[list["Input"], "ReadBatch"]]:
    """Yields the images in batches of `batch_size`, with what was read of them."""
    from collections import deque
    from itertools import islice

    ahead: deque[list[Input]] = deque()

    def requests() -> Iterator[list[str]]:
        while batch := list(islice(inputs, batch_size)):
            ahead.append(batch)
            yield [each.path for each in batch]

    with closing(loader.read(requests())) as batches:
        for read in batches:
            yield ahead.popleft(), read


def write_batch(
    asked: list["Input"],
    read: "ReadBatch",
    predictor: "Predictor",
    table: "PredictionTable",
    features: "FeatureFile | None",
    tally: Tally,
) -> None:
    """Predicts one batch, and writes its rows."""
    readable = [row for row in range(len(asked)) if row not in read.unreadable]
    # As it is where it can be: a GPU copies by itself from the memory that it lies in.
    images = read.images[readable] if read.unreadable else read.images
    found = predictor.predict(images) if readable else None
    feature_row, places = features.num_rows if features else 0, iter(range(len(readable)))
    for row, each in enumerate(asked):
        tally.num_images += 1
        if row in read.unreadable:
            tally.num_unreadable += 1
            table.refused(each.image, each.label, each.problem or read.unreadable[row], None)
            continue
        assert found is not None
        place = next(places)
        if found.is_finite[place]:
            best = found.classes[place].tolist()
            probabilities = found.probabilities[place].tolist()
            table.predicted(each.image, each.label, best, probabilities, feature_row + place)
            tally.num_correct += each.label == best[0]
        else:
            tally.num_not_finite += 1
            table.refused(each.image, each.label, NOT_FINITE, feature_row + place)
        tally.num_labelled += each.label is not None
    if features and found and found.features is not None:
        features.add(found.features.numpy())


if __name__ == "__main__":
    sys.exit(cli.run("predict", PredictKeys, main))
