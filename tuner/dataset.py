"""`python -m tuner.dataset`: only the prepare stage of a search, and what it found.

python -m tuner.dataset space=imagenet_small data.source=folder data.root=/my/images
"""

import json
import sys

from pydantic import Field

from tuner import cli
from tuner.errors import DataError
from tuner.files import hold_folder
from tuner.stages.opening import open_search


class DatasetKeys(cli.Keys):
    """Opens every image once and tells classes, splits, unreadable files and copies."""

    space: str = Field(description="name in search_spaces/, or the path of a .yaml file")
    name: cli.RunName | None = Field(
        default=None, description="folder for dataset.json under output; null is the space's name"
    )
    output: str = Field(default="results", description="folder of the search that may follow")


def main(keys: DatasetKeys, overrides: list[str]) -> None:
    """Prints the table, with every unreadable file; a search that follows opens none again."""
    asked = open_search(keys.space, overrides, name=keys.name, output=keys.output, resume="auto")
    skipping = asked.with_settings({"data.on_bad_image": "skip"})

    from tuner.reporting.dataset_table import dataset_table
    from tuner.reporting.terminal import say
    from tuner.stages.course import plan_course
    from tuner.stages.prepare import prepare

    with hold_folder(asked.folder):
        data = prepare(plan_course(skipping))
    assert data.record is not None
    record = json.loads(data.record)
    for line in dataset_table(record):
        say(line)
    if record["unreadable"] and asked.config.data.on_bad_image == "fail":
        raise DataError(
            f"data.root: {len(record['unreadable'])} unreadable images, listed above; "
            "replace them or set data.on_bad_image=skip"
        )


if __name__ == "__main__":
    sys.exit(cli.run("dataset", DatasetKeys, main))
