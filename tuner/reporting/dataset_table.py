"""What a data set holds and where it is odd, for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MOST_CLASSES = 50
MOST_COPIES = 20


def dataset_table(record: Mapping[str, Any]) -> Iterator[str]:
    """Yields lines: images by class and split, every unreadable file, and misleading copies.

    Args:
        record: The content of `dataset.json`.
    """
    yield from _counts(record)
    if record["unreadable"]:
        yield f"unreadable images: {len(record['unreadable'])}"
        for split in record["images"].values():
            rows = (dict(zip(record["columns"], row, strict=True)) for row in split)
            yield from (f"  {row['reason']}" for row in rows if row["reason"])
    yield from _copies("identical images in several classes", record["copies_across_classes"])
    yield from _copies("identical images in both splits", record["copies_across_splits"])


def _counts(record: Mapping[str, Any]) -> Iterator[str]:
    counts, classes = record["counts"], record["classes"]
    rows = [(name, *(str(of_split[name]) for of_split in counts.values())) for name in classes]
    total = [str(sum(of_split.values())) for of_split in counts.values()]
    hidden = len(rows) - MOST_CLASSES
    if hidden > 0:
        rows[MOST_CLASSES:] = [(f"… {hidden} more in dataset.json", *("" for _ in counts))]
    lines = [("class", *counts), *rows, ("all", *total)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, *cells in lines:
        figures = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield "  ".join([name.ljust(widths[0]), *figures]).rstrip()


def _copies(what: str, groups: Sequence[Sequence[str]]) -> Iterator[str]:
    if not groups:
        return
    yield f"{what}: {len(groups)}"
    yield from (f"  {' = '.join(group)}" for group in groups[:MOST_COPIES])
    if len(groups) > MOST_COPIES:
        yield f"  … {len(groups) - MOST_COPIES} more in dataset.json"
