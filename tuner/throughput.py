"""`python -m tuner.throughput`: only the measure stage of a search, and its table.

python -m tuner.throughput space=imagenet_small
"""

import csv
import sys
from dataclasses import replace

from pydantic import Field

from tuner import cli
from tuner.errors import SettingsError
from tuner.files import hold_folder
from tuner.stages.opening import open_search


class ThroughputKeys(cli.Keys):
    """Measures which loader workers and slices train most images/s, for the searches to come."""

    space: str = Field(description="name in search_spaces/, or the path of a .yaml file")
    output: str = Field(default="results", description="folder whose .cache remembers it")


def main(keys: ThroughputKeys, overrides: list[str]) -> None:
    """Prepares the images, measures afresh, prints the table and remembers it."""
    asked = open_search(keys.space, overrides, name=None, output=keys.output, resume="auto")
    if not asked.space.throughput:
        raise SettingsError(
            f"{keys.space}: has no throughput settings to choose from; "
            "add throughput.loader.num_workers=[0, 1]"
        )
    search = replace(asked, folder=asked.cache_root / "throughput" / asked.name)

    from tuner.data.prepare import write_dataset_record
    from tuner.raytune.engine import ray_session
    from tuner.reporting.speed_table import speed_table
    from tuner.reporting.terminal import say, say_under
    from tuner.stages.course import plan_course, say_machine
    from tuner.stages.measure import measure_speeds, told
    from tuner.stages.prepare import decode, prepare

    course = plan_course(search)
    say_machine(course)
    with (
        hold_folder(search.folder),
        ray_session(
            course.machine,
            search.folder,
            course.on_dashboard,
            what_now="the same command measures afresh",
        ) as ray,
    ):
        data = prepare(course)
        write_dataset_record(search.folder / "dataset.json", data)  # the processes read it
        course = decode(course.with_images(data), data)
        known = measure_speeds(course, data.fingerprint, ray)
    say_under("measure", told(known))
    for line in speed_table(list(csv.DictReader(known.table.splitlines()))):
        say(line)


if __name__ == "__main__":
    sys.exit(cli.run("throughput", ThroughputKeys, main))
