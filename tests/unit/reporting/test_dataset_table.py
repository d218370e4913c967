"""The table of a data set names what is odd in it."""

from typing import Any

from tuner.reporting.dataset_table import MOST_CLASSES, MOST_COPIES, dataset_table

COLUMNS = ["path", "label", "reason"]


def record(**changes: Any) -> dict[str, Any]:
    return {
        "classes": ["cat", "dog 10"],
        "counts": {"train": {"cat": 1200, "dog 10": 3}, "validation": {"cat": 0, "dog 10": 40}},
        "unreadable": [],
        "columns": COLUMNS,
        "images": {"train": [["a.jpg", 0, None]], "validation": []},
        "copies_across_classes": [],
        "copies_across_splits": [],
    } | changes


def test_classes_are_counted_by_split() -> None:
    assert list(dataset_table(record())) == [
        "class   train  validation",
        "cat      1200           0",
        "dog 10      3          40",
        "all      1203          40",
    ]


def test_every_unreadable_file_is_named_with_its_reason() -> None:
    images = {
        "train": [["a.jpg", 0, None], ["b.jpg", 0, "b.jpg: the file is empty"]],
        "validation": [["c.jpg", 1, "c.jpg: cut short"]],
    }
    lines = list(dataset_table(record(unreadable=["b.jpg", "c.jpg"], images=images)))
    assert lines[4:] == [
        "unreadable images: 2",
        "  b.jpg: the file is empty",
        "  c.jpg: cut short",
    ]


def test_copies_stand_beside_each_other_up_to_a_number() -> None:
    groups = [[f"a/{number}.jpg", f"b/{number}.jpg"] for number in range(MOST_COPIES + 2)]
    lines = list(
        dataset_table(record(copies_across_classes=groups[:1], copies_across_splits=groups))
    )
    assert lines[4:8] == [
        "identical images in several classes: 1",
        "  a/0.jpg = b/0.jpg",
        "identical images in both splits: 22",
        "  a/0.jpg = b/0.jpg",
    ]
    assert lines[-1] == "  … 2 more in dataset.json"


def test_many_classes_are_cut_short() -> None:
    names = [f"c{number}" for number in range(MOST_CLASSES + 7)]
    counts = {"train": dict.fromkeys(names, 2), "validation": dict.fromkeys(names, 1)}
    lines = list(dataset_table(record(classes=names, counts=counts)))
    assert len(lines) == MOST_CLASSES + 3
    assert lines[-2:] == ["… 7 more in dataset.json", "all                         114          57"]
