"""The test split: opened with the other images, shown to the final choice alone, once each.

Every look makes its score say less of images to come, so each is written down before it is told.
"""

import math
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

from tuner.data.held_out import HeldOut
from tuner.data.prepare import PreparedData
from tuner.errors import StudyError
from tuner.files import write_json
from tuner.handover import write_found
from tuner.images import prepare_held_out
from tuner.model_folder import load_model_folder
from tuner.reading import read_originals
from tuner.reporting.terminal import count_text, counting, say_under
from tuner.settings.text import read_yaml
from tuner.stages.course import Course
from tuner.stages.hand_over import Winner
from tuner.study.record import SEED_KEY
from tuner.training.confusion import balanced_top1
from tuner.training.evaluate import Evaluation, evaluate
from tuner.training.loop import evaluation_batches, set_up_device
from tuner.training.state import autocast_dtype

IMAGES_PER_PROCESS = 500  # a further reading process would start for longer than it helps


@dataclass(frozen=True, slots=True)
class Look:
    """One evaluation on the test split.

    Attributes:
        trial_number: Of the winner that was scored.
        seed: Of the run whose weights were.
        samples_seen: By that run until then.
        images: The fingerprint of the test images.
        num_correct: None where the model's outputs were no numbers.
        balanced_top1: The mean of top-1 over the classes; None as above.
    """

    trial_number: int
    seed: int
    samples_seen: int
    images: str
    num_evaluated: int
    num_correct: int | None = None
    balanced_top1: float | None = None

    def is_of(self, other: "Look") -> bool:
        """Says whether the same weights were shown the same images."""
        keys = ("trial_number", "seed", "samples_seen", "images")
        mine, others = asdict(self), asdict(other)
        return all(mine[key] == others[key] for key in keys)


def open_held_out(course: Course, data: PreparedData) -> HeldOut | None:
    """Returns the images of the test split, each opened once; None where none is asked for.

    Raises:
        DataError: The images cannot be used; one line for each reason.
        StudyError: What earlier starts have seen of them cannot be read.
    """
    search, plan = course.search, course.plan
    with counting("test images") as progress:
        held_out = prepare_held_out(
            search.config,
            data,
            report_path=search.folder / "test_images.json",
            num_processes=plan.slots * plan.threads,
            progress=progress,
        )
    if held_out is None:
        return None
    read_looks(looks_path(course))  # a damaged file is told before anything is trained
    count = count_text(len(held_out.images), "test image")
    say_under("", f"{count}: they choose nothing, and score the winner once", *held_out.notes)
    return held_out


def score_held_out(course: Course, held_out: HeldOut | None, winner: Winner) -> Winner:
    """Returns the winner with its score on the test split, which goes into `best.yaml` as well.

    It is evaluated where this was not done before. Without a test split it has the score that an
    earlier start gave it, if any.

    Raises:
        DataError: An image has changed since it was checked.
    """
    folder = course.search.folder
    if held_out is None:
        return replace(winner, test=read_yaml(folder / "best.yaml").get("test"))
    wanted = Look(
        trial_number=winner.trial.number,
        seed=winner.run.settings.get(SEED_KEY, course.search.config.train.seed),
        samples_seen=winner.report["samples_seen"],
        images=held_out.fingerprint,
        num_evaluated=len(held_out.images),
    )
    looks = read_looks(looks_path(course))
    look = next((each for each in looks if each.is_of(wanted)), None)
    if look is None:
        look = with_score(wanted, held_out, evaluate_best(course, held_out))
        looks = [*looks, look]
        write_json(looks_path(course), [asdict(each) for each in looks])
    test = describe_look(look, num_looks=len(looks))
    write_found(folder, {"test": test})
    return replace(winner, test=test)


def describe_look(look: Look, *, num_looks: int) -> dict[str, Any]:
    """Returns what `best.yaml` says of the test split, as plain values.

    Args:
        look: At the winner's weights.
        num_looks: How often test images were looked at in this search, for any weights.
    """
    count = look.num_correct
    return {
        "top1": None if count is None else count / look.num_evaluated,
        "balanced_top1": look.balanced_top1,
        "num_correct": count,
        "num_evaluated": look.num_evaluated,
        "looks": num_looks,
    }


def with_score(look: Look, held_out: HeldOut, found: Evaluation) -> Look:
    """Returns the look with what was found; outputs that are no numbers are never a score."""
    if not math.isfinite(found.loss_sum):
        return look
    balanced = balanced_top1(held_out.images.labels, found.predictions.numpy())
    return replace(look, num_correct=found.num_correct_top1, balanced_top1=balanced)


def evaluate_best(course: Course, held_out: HeldOut) -> Evaluation:
    """Returns what the model in `best/` finds on the test images, read and shown as in training."""
    loaded = load_model_folder(course.search.folder / "best")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    num_cpus = max(1, int(course.machine.cpus))
    torch.set_num_threads(num_cpus)
    set_up_device(device)
    dtype = autocast_dtype(loaded.config.train.precision, device)
    loader = read_originals(
        loaded.config,
        {held_out.images.split: held_out.images},
        num_workers=min(num_cpus, len(held_out.images) // IMAGES_PER_PROCESS),
        prefetch_factor=loaded.config.loader.prefetch_factor,
        is_pinned=device.type == "cuda",
    )
    with closing(loader):
        batches = evaluation_batches(
            loader,
            held_out.images,
            device=device,
            dtype=dtype,
            image_size_px=loaded.config.data.image_size,
        )
        model = loaded.model.to(device).to(memory_format=torch.channels_last)
        return evaluate(model, batches, device=device, autocast_dtype=dtype)


def looks_path(course: Course) -> Path:
    """Returns where the looks of a search are kept."""
    return course.search.folder / "test_scores.json"


def read_looks(path: Path) -> list[Look]:
    """Returns the looks so far, the first one first.

    Raises:
        StudyError: The file cannot be read.
    """
    try:
        return TypeAdapter(list[Look]).validate_json(path.read_bytes(), strict=True)
    except FileNotFoundError:
        return []
    except (OSError, ValidationError) as error:
        raise StudyError(
            f"{path}: cannot be read ({type(error).__name__}); it counts how often the test images "
            "were looked at: take it from a whole copy, or remove it to count anew"
        ) from error
