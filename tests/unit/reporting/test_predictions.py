"""Features come as a whole array, whose number of rows was not known at first."""

import io
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.data.input_tables import open_inputs
from tuner.data.listing import CONTROL
from tuner.reporting.predictions import FeatureFile, PredictionTable


@pytest.mark.parametrize("sizes", [[], [0, 0], [3, 0, 64, 1], [1] * 1234])
def test_an_array_grows_to_any_number_of_rows(tmp_path: Path, sizes: list[int]) -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(size, 5)).astype(np.float32) for size in sizes]
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        features = FeatureFile(file, 5)
        for part in parts:
            features.add(part)
        features.finish()
    found = np.load(path, mmap_mode="r")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.concatenate([np.empty((0, 5), np.float32), *parts]))


def test_rows_name_the_best_classes_or_the_reason() -> None:
    file = io.StringIO(newline="")
    table = PredictionTable(file, ("a, b", "c"), 2, has_features=True)
    table.predicted('x".jpg', 1, [0, 1], [0.75, 0.25], 0)
    table.predicted("y.jpg", None, [1, 0], [0.6666666865348816, 1e-9], 1)
    table.refused("z.jpg", 0, "the file is empty (0 bytes)", None)
    assert file.getvalue() == (
        "image,label,prediction,probability,class_1,probability_1,class_2,probability_2,reason,"
        "feature_row\n"
        '"x"".jpg",c,"a, b",0.75,"a, b",0.75,c,0.25,,0\n'
        'y.jpg,,c,0.666667,c,0.666667,"a, b",1e-09,,1\n'
        'z.jpg,"a, b",,,,,,,the file is empty (0 bytes),\n'
    )


CLASSES = ("label", "a, b", "x;y", 'q"', "007")
names = st.text(st.sampled_from(" ,;\"'aé.\u2028\x85#") | st.characters(codec="utf-8"), min_size=1)
images = (names.filter(str.isprintable) | names.map(lambda name: f" {name}.jpg")).filter(
    lambda name: not CONTROL.search(name)
)


@given(st.lists(st.tuples(images, st.none() | st.sampled_from(range(5))), min_size=1))
def test_what_was_written_names_the_same_images_and_labels_again(
    rows: list[tuple[str, int | None]],
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "all.csv")
        with path.open("w", encoding="utf-8", newline="") as file:
            table = PredictionTable(file, CLASSES, 2, has_features=True)
            for number, (image, label) in enumerate(rows):
                if number % 2:
                    table.predicted(image, label, [0, 1], [0.75, 0.25], number)
                else:
                    table.refused(image, label, "not a readable image (a, b;\tc)", None)
        assert [(each.image, each.label) for each in open_inputs(path, CLASSES).begin()] == rows
