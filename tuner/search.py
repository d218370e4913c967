"""`python -m tuner.search`: finds the best training settings, and goes on where it stopped.

python -m tuner.search space=imagenet_small
"""

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field

from tuner import cli
from tuner.errors import RunError, StoppedError
from tuner.files import hold_folder, stopping_for_disk
from tuner.stages.opening import Search, open_search


class SearchKeys(cli.Keys):
    """Searches a space for the best training settings; the same command again goes on.

    space=imagenet_small                                           images that are rendered
    space=imagenet_small data.source=folder data.root=my_images    a folder for each class
    space=csv_mining data.root=my_csv                              names and labels in CSV files
    space=imagenet_small data.source=list data.root=my_list        lines of `path label`
    space=cifar10 data.download=true                               a set of torchvision
    """

    space: str = Field(description="name in search_spaces/, or the path of a .yaml file")
    name: cli.RunName | None = Field(
        default=None, description="folder of the search under output; null is the space's name"
    )
    output: str = Field(default="results", description="folder that searches are written under")
    resume: Literal["auto", "never", "must"] = Field(
        default="auto",
        description="go on with a search of that name; never begins another beside it",
    )
    dry_run: bool = Field(default=False, description="print plan, time and disk, and start nothing")


def main(keys: SearchKeys, overrides: list[str]) -> None:
    """Prepares the images, measures speed, searches, confirms, and hands the winner over."""
    search = open_search(
        keys.space, overrides, name=keys.name, output=keys.output, resume=keys.resume
    )

    from tuner.stages.course import open_course

    course = open_course(search, is_dry_run=keys.dry_run)
    if keys.dry_run:
        return

    from tuner.raytune.engine import ray_session
    from tuner.stages.confirm import confirm
    from tuner.stages.hand_over import hand_over
    from tuner.stages.held_out import open_held_out, score_held_out
    from tuner.stages.measure import measure
    from tuner.stages.networks import write_fitted
    from tuner.stages.prepare import decode, prepare
    from tuner.stages.summary import sum_up
    from tuner.stages.train import open_record, train_trials

    times: dict[str, float] = {}
    goes_on = how_to_go_on(search)
    with (
        hold_folder(search.folder),
        saying(goes_on, search.folder),
        ray_session(
            course.machine,
            search.folder,
            course.on_dashboard,
            what_now=f"nothing is lost; {goes_on}",
        ) as ray,
    ):
        with timing(times, "prepare"):
            data = prepare(course)
            held_out = open_held_out(course, data)
            record = open_record(search, data, course.points)
            write_fitted(search.folder / "weights.json", course.weights)
            course = decode(course.with_images(data), data)
        with timing(times, "measure"):
            has_trials = bool(record.trials)
            course = measure(course, data.fingerprint, ray, has_trials=has_trials)
        with timing(times, "search"):
            train_trials(course, record, ray)
        with timing(times, "confirm"):
            runs = confirm(course, record, ray, goes_on)
        with timing(times, "hand over"):
            winner = hand_over(course, data, record, runs)
            winner = score_held_out(course, held_out, winner)
        sum_up(course, winner, record, runs, times, is_whole=not has_trials)


@contextmanager
def timing(times: dict[str, float], stage: str) -> Iterator[None]:
    """Adds to `times` the seconds that a stage took."""
    started = time.monotonic()
    yield
    times[stage] = time.monotonic() - started


def how_to_go_on(search: Search) -> str:
    """Returns the command that goes on with a search, in words."""
    given = [each for each in sys.argv[1:] if not each.startswith(("name=", "resume="))]
    command = ["python", "-m", "tuner.search", *given, f"name={search.name}"]
    return f"go on with: {shlex.join(command)}"


@contextmanager
def saying(how_to_go_on: str, folder: Path) -> Iterator[None]:
    """Says with which command a search goes on that ended before it was done.

    Raises:
        RunError: It did; the disk is full, say.
    """
    try:
        with stopping_for_disk(folder):
            yield
    except StoppedError as error:
        raise RunError(*(f"{each}; {how_to_go_on}" for each in error.problems)) from error


if __name__ == "__main__":
    sys.exit(cli.run("search", SearchKeys, main))
