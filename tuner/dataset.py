"""`python -m tuner.dataset`: opens every image of a search once, and tells what it found.

python -m tuner.dataset space=imagenet_small data.source=folder data.root=/my/images
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

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

    from tuner.images import prepare_held_out, prepare_images
    from tuner.planning.machine import look
    from tuner.reporting.dataset_table import dataset_table
    from tuner.reporting.terminal import counting, say

    num_processes = max(1, int(look().cpus))
    with hold_folder(asked.folder), counting("prepare") as progress:
        data = prepare_images(
            skipping.config,
            asked.cache_root,
            report_path=asked.folder / "dataset.json",
            num_processes=num_processes,
            progress=progress,
            may_mine=asked.may_mine,
        )
        held_out = prepare_held_out(
            skipping.config,
            data,
            report_path=asked.folder / "test_images.json",
            num_processes=num_processes,
            progress=progress,
        )
    assert data.record is not None
    record, notes = json.loads(data.record), data.notes
    num_bad = {"data.root": len(record["unreadable"])}
    if held_out:
        notes = (*notes, *held_out.notes)
        num_bad["data.test_root"] = len(held_out.record["unreadable"])
        record = with_split(record, held_out.record)
    for line in (*notes, *dataset_table(record)):
        say(line)
    if asked.config.data.on_bad_image == "fail" and any(num_bad.values()):
        raise DataError(
            *(
                f"{key}: {count} unreadable images, listed above; "
                "replace them or set data.on_bad_image=skip"
                for key, count in num_bad.items()
                if count
            )
        )


def with_split(record: Mapping[str, Any], split: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the record of a data set with that of another split of the same columns."""
    return {
        **record,
        "counts": record["counts"] | split["counts"],
        "images": record["images"] | split["images"],
        "unreadable": record["unreadable"] + split["unreadable"],
    }


if __name__ == "__main__":
    sys.exit(cli.run("dataset", DatasetKeys, main))
