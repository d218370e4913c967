"""`python -m tuner.throughput`: only the measure stage of a search, and its table.

python -m tuner.throughput space=imagenet_small
"""

import csv
import sys

from pydantic import Field

from tuner import cli
from tuner.files import hold_folder
from tuner.stages.opening import open_search


class ThroughputKeys(cli.Keys):
    """Measures which loader workers and slices train most images/s, for the searches to come."""

    space: str = Field(description="name in search_spaces/, or the path of a .yaml file")
    name: cli.RunName | None = Field(
        default=None, description="folder of the search under output; null is the space's name"
    )
    output: str = Field(default="results", description="folder that searches are written under")


def main(keys: ThroughputKeys, overrides: list[str]) -> None:
    """Prepares the images, measures afresh, prints the table and remembers it."""
    search = open_search(keys.space, overrides, name=keys.name, output=keys.output, resume="auto")

    from tuner.raytune.engine import ray_session
    from tuner.reporting.speed_table import speed_table
    from tuner.reporting.terminal import say
    from tuner.stages.course import open_course
    from tuner.stages.measure import measure
    from tuner.stages.prepare import prepare

    course = open_course(search, is_dry_run=False)
    with hold_folder(search.folder), ray_session(course.machine, course.on_dashboard) as ray:
        data = prepare(course)
        measure(course.with_images(data), data.fingerprint, ray, may_recall=False)
    if search.space.throughput:
        with (search.folder / "throughput.csv").open(encoding="utf-8", newline="") as file:
            for line in speed_table(list(csv.DictReader(file)), list(search.space.throughput)):
                say(line)


if __name__ == "__main__":
    sys.exit(cli.run("throughput", ThroughputKeys, main))
