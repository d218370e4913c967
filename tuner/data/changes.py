"""How the images of a data set differ from those that were recorded before."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.data.listing import counted
from tuner.data.prepare import PreparedData

KINDS = ("added", "removed", "relabelled", "in the other split", "changed", "renamed")


@dataclass(frozen=True, slots=True)
class Image:
    """One good image of a record."""

    path: str
    label: str
    split: str
    digest: str


def describe_image_changes(old_record: Path, prepared: PreparedData) -> str:
    """Return how many images were added, removed and so on since `old_record`, and which classes.

    Nothing where there is no old record, or one of the same images. A file under another path is
    known by its content.
    """
    assert prepared.record is not None
    try:
        old = json.loads(old_record.read_text(encoding="utf-8"))
        if old["fingerprint"] == prepared.fingerprint:
            return ""
        before = _images(old)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return ""  # missing, damaged or of other columns
    new = json.loads(prepared.record)
    counts = _count(before, _images(new))
    parts = [f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]]
    for what, classes, others in (
        ("new classes", new["classes"], old["classes"]),
        ("classes gone", old["classes"], new["classes"]),
    ):
        if names := [name for name in classes if name not in others]:
            parts.append(f"{what}: {counted(names)}")
    hard, hard_before = (set(record.get("first_hard", ())) for record in (new, old))
    if not parts and hard != hard_before:
        parts.append(
            f"{len(hard - hard_before)} more and {len(hard_before - hard)} fewer are hard first"
        )
    return ", ".join(parts)


def _images(record: Mapping[str, Any]) -> dict[str, Image]:
    columns = record["columns"]
    rows = (
        (split, dict(zip(columns, row, strict=True)))
        for split, rows in record["images"].items()
        for row in rows
    )
    return {
        row["path"]: Image(row["path"], record["classes"][row["label"]], split, row["digest"])
        for split, row in rows
        if row["reason"] is None
    }


def _count(before: Mapping[str, Image], now: Mapping[str, Image]) -> Counter[str]:
    removed = defaultdict(list)
    for path in sorted(before.keys() - now.keys(), reverse=True):
        removed[before[path].digest].append(before[path])
    counts = Counter(_kind(before[path], now[path]) for path in before.keys() & now.keys())
    for path in sorted(now.keys() - before.keys()):
        elsewhere = removed[now[path].digest]
        counts[_kind(elsewhere.pop(), now[path]) if elsewhere else "added"] += 1
    counts["removed"] = sum(map(len, removed.values()))
    return counts


def _kind(was: Image, image: Image) -> str:
    if was.label != image.label:
        return "relabelled"
    if was.split != image.split:
        return "in the other split"
    if was.digest != image.digest:
        return "changed"
    return "renamed" if was.path != image.path else "the same"
