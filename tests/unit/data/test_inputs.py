"""All images of a folder, a list or a csv come in order, with the labels that are known."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from tuner.data import input_tables
from tuner.data.index import load_splits
from tuner.data.input_tables import open_inputs
from tuner.data.inputs import Input
from tuner.data.pool import LONGEST_PATH_BYTES
from tuner.errors import DataError

CLASSES = ("class 1", "class 2", "class 10")


def images_of(path: Path, *, root: Path | None = None) -> list[Input]:
    return list(open_inputs(path, CLASSES, root).begin())


def rows_of(path: Path) -> list[tuple[str, int | None]]:
    return [(each.image, each.label) for each in images_of(path)]


def problems_of(path: Path) -> list[str]:
    with pytest.raises(DataError) as caught:
        open_inputs(path, CLASSES)
    return list(caught.value.problems)


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_split_has_the_order_and_the_labels_of_training(image_folder: Path) -> None:
    (image_folder / "val" / "class 1").rename(image_folder / "val" / "class 1!")
    (image_folder / "train" / "class 1").rename(image_folder / "train" / "class 1!")
    splits = load_splits(image_folder, validation_fraction=0.2, split_seed=0)
    index = splits.validation
    found = open_inputs(image_folder / "val", index.classes)
    assert found.num_images == len(index)
    assert [(f"val/{each.image}", each.label) for each in found.begin()] == [
        *zip(index.paths(), index.labels.tolist(), strict=True)
    ]


def test_labels_are_known_below_the_folders_of_both_splits(image_folder: Path) -> None:
    (image_folder / "more").mkdir()
    (image_folder / "val" / "class 1" / "0.jpg").rename(image_folder / "more" / "0.jpg")
    (image_folder / "val" / "class 1" / "1.jpg").rename(image_folder / "1.jpg")
    rows = dict(rows_of(image_folder))
    assert len(rows) == 36
    assert (rows["more/0.jpg"], rows["1.jpg"]) == (None, None)
    assert (rows["val/class 1/2.jpg"], rows["train/class 10/0.jpg"]) == (0, 2)


def test_a_class_without_images_leaves_the_labels_known(image_folder: Path) -> None:
    for path in (image_folder / "val" / "class 2").iterdir():
        path.unlink()
    (image_folder / "val" / "class 2").rmdir()
    assert {label for _, label in rows_of(image_folder / "val")} == {0, 2}


def test_folders_that_are_no_classes_give_no_labels_and_are_told(image_folder: Path) -> None:
    (image_folder / "val" / "class 2").rename(image_folder / "val" / "class two")
    found = open_inputs(image_folder / "val", CLASSES)
    assert {each.label for each in found.begin()} == {None}
    assert found.notes == (
        "images: no labels, for these folders are no class of the model: 1 (class two)",
    )


def test_what_is_no_image_is_counted_and_links_are_followed_once(image_folder: Path) -> None:
    val = image_folder / "val"
    (val / ".hidden").mkdir()
    (val / ".hidden" / "0.jpg").write_bytes(b"x")
    (val / "class 1" / ".DS_Store").write_bytes(b"x")
    (val / "class 1" / "notes.txt").write_bytes(b"x")
    os.mkfifo(val / "class 1" / "endless.jpg")
    (val / "class 1" / "again").symlink_to(val)
    (val / "class 1" / "gone.jpg").symlink_to("nowhere.jpg")
    (val / "class 2" / "other").symlink_to(image_folder / "train" / "class 10")
    found = open_inputs(val, CLASSES)
    assert found.notes == (
        "images: hidden or system files ignored: 2",
        "images: files ignored that are no images: 2 (.jpg 1, .txt 1)",
        "images: links ignored that lead back: 1",
    )
    images = [each.image for each in found.begin()]
    assert len(images) == found.num_images == 12 + 1 + 8
    assert {"class 1/gone.jpg", "class 2/other/0.jpg"} <= set(images)


def test_names_that_no_csv_can_hold_are_images_with_a_problem(image_folder: Path) -> None:
    odd = os.fsencode(image_folder / "val" / "class 1")
    for name in (b"a\nb.jpg", b"\xff.jpg"):
        with open(odd + b"/" + name, "wb"):
            pass
    problem = "the name has a line break or is not UTF-8; rename it"
    assert [each for each in images_of(image_folder / "val") if each.problem] == [
        Input("class 1/a\\nb.jpg", "", 0, problem),
        Input("class 1/\\udcff.jpg", "", 0, problem),
    ]


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path)
    assert problem.startswith(f"images: '{tmp_path}' holds no image (.avif, .bmp, ")


def test_one_image_is_enough(image_folder: Path) -> None:
    path = image_folder / "val" / "class 1" / "0.jpg"
    assert images_of(path) == [Input(str(path), str(path))]


def test_lines_of_a_list_are_paths_with_or_without_a_class(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "list.txt",
        "\ufeffa/class 1.jpg class 1\r\n\r\nmy photo.JPG\r/b\u2028c.png\tclass 10\n"
        "  plain\n# x y\nx y class 2\ra 1.jpg\t class 2\nclass 1 class 10",
    )
    assert rows_of(path) == [
        ("a/class 1.jpg", 0),
        ("my photo.JPG", None),
        ("/b\u2028c.png", 2),
        ("plain", None),
        ("x y", 1),
        ("a 1.jpg", 1),
        ("class 1", 2),
    ]
    assert [each.path for each in images_of(path)][:3] == [
        f"{tmp_path}/a/class 1.jpg",
        f"{tmp_path}/my photo.JPG",
        "/b\u2028c.png",
    ]
    assert images_of(path, root=Path("/r"))[0].path == "/r/a/class 1.jpg"


@pytest.mark.parametrize(
    "text",
    [
        "image,label\na b.jpg,class 1\n'007',\n",
        "Species,File Name\nclass 1,a b.jpg\n,'007'\n",
        "label;extra;IMAGE\nclass 1;x;a b.jpg\n;y;'007'\n",
        "\ufeffpath\tclass\r\na b.jpg\tclass 1\r\n'007'\t\r\n",
        '"a b.jpg","class 1"\n\n"\'007\'",""',
    ],
)
def test_rows_of_a_csv_are_texts_by_their_header_or_their_place(tmp_path: Path, text: str) -> None:
    assert rows_of(written(tmp_path, "x.csv", text)) == [("a b.jpg", 0), ("'007'", None)]


@pytest.mark.parametrize(
    "text", ["0.jpg\n1.jpg", "Image\n0.jpg\n1.jpg", "size,path,score\n7,0.jpg,class 1\n,1.jpg,\n"]
)
def test_a_csv_of_paths_needs_no_labels(tmp_path: Path, text: str) -> None:
    assert rows_of(written(tmp_path, "x.csv", text)) == [("0.jpg", None), ("1.jpg", None)]


def test_images_may_come_again_and_lie_anywhere(tmp_path: Path) -> None:
    path = written(tmp_path, "x.csv", "a.jpg,class 1\na.jpg,class 2\n../b.jpg,\n/c.jpg,\n")
    assert [(each.path, each.label) for each in images_of(path)] == [
        (f"{tmp_path}/a.jpg", 0),
        (f"{tmp_path}/a.jpg", 1),
        (f"{tmp_path}/../b.jpg", None),
        ("/c.jpg", None),
    ]


def test_a_path_that_is_too_long_is_an_image_with_a_problem(tmp_path: Path) -> None:
    name = "n" * 5000
    (found,) = images_of(written(tmp_path, "x.txt", name))
    assert found == Input(name, "", None, f"the path is longer than {LONGEST_PATH_BYTES} bytes")


@pytest.mark.parametrize(
    ("name", "content", "problems"),
    [
        (
            "x.csv",
            "a.jpg,class 1\nb.jpg,clas 2\n,class 1\nc.jpg\n",
            [
                "line 2: no class of the model ('clas 2'); use one of its 3 or leave it out; "
                "did you mean class 2?",
                "line 3: the file name is empty; write it or remove the line",
                "line 4: the number of cells is 1, in line 1 it is 2; quote cells that hold a "
                "comma",
            ],
        ),
        (
            "x.csv",
            "a.jpg,class 1,3\n",
            [
                "line 1: 3 columns ('a.jpg', 'class 1', '3') and nothing says which is which; "
                "begin the file with a header that has the columns path and label",
            ],
        ),
        (
            "x.csv",
            'a.jpg,"class 1"2\n',
            [
                "line 1: a quote is open or misplaced; "
                'begin and end the cell with ", double those within'
            ],
        ),
        (
            "x.csv",
            b"a.jpg,class 7\n\xe9.jpg,class 1\n",
            [
                "line 2: byte 0xE9 is not UTF-8 (Latin-1 or Windows-1252, it seems); "
                "save it as UTF-8"
            ],
        ),
        (
            "x.txt",
            "a.jpg\n".encode("utf-16-le"),
            [
                "line 1: a NUL character, as in UTF-16 without a byte order mark, "
                "or the file is no text; save it as UTF-8"
            ],
        ),
        (
            "x.txt",
            "a\vb.jpg\nc\td.jpg\n",
            [
                "line 1: a control character in 'a\\x0bb.jpg', ''; remove it",
                "line 2: no class of the model ('d.jpg'); use one of its 3 or leave it out",
            ],
        ),
        (
            "x.txt",
            "a.jpg 7\n",
            ["line 1: no class of the model ('7'); use one of its 3 or leave it out"],
        ),
    ],
)
def test_wrong_lines_are_told_with_their_number(
    tmp_path: Path, name: str, content: str | bytes, problems: list[str]
) -> None:
    path = written(tmp_path, name, content)
    assert problems_of(path) == [f"{path} {problem}" for problem in problems]


def test_of_many_wrong_labels_the_first_are_told_and_all_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[str] = []

    def look_up(name: str, known: Iterable[str]) -> str:
        looked_up.append(name)
        return ""

    monkeypatch.setattr(input_tables, "did_you_mean", look_up)
    path = written(tmp_path, "x.csv", "".join(f"{n}.jpg,clas {n}\n" for n in range(7)))
    assert problems_of(path) == [
        *(
            f"{path} line {n + 1}: no class of the model ('clas {n}'); use one of its 3 or leave "
            "it out"
            for n in range(5)
        ),
        f"{path}: 7 lines with labels that are no class of the model; the first 5 are above",
    ]
    assert looked_up == [f"clas {n}" for n in range(5)]


def test_a_file_that_names_nothing_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "x.txt", "\n# a.jpg\n")
    assert problems_of(path) == [f"images: '{path}' names no image; write one on each line"]
