"""A model folder is read back as it was written, or refused in one line that says what is wrong."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from tuner.assemble import build_net
from tuner.errors import CheckpointError, SettingsError, TunerError
from tuner.handover import write_model_folder
from tuner.model_folder import load_model_folder
from tuner.settings.config import Config
from tuner.settings.places import find_model_folder, new_file, new_folder

CONFIG = Config().with_overrides(
    {"data.image_size": 16, "augment.crop": "resized", "model.name": "resnet8_s2"}
)
CLASSES = ["a", "b", "c"]


@pytest.fixture
def folder(hostile_tmp_path: Path) -> Path:
    """Return a model folder of new weights."""
    folder = hostile_tmp_path / "best"
    torch.manual_seed(1)
    weights = build_net(CONFIG, len(CLASSES)).state_dict()
    winner = {"result": {"top1": 0.5}, "settings": CONFIG.model_dump(), "classes": CLASSES}
    write_model_folder(folder, weights, winner, CONFIG)
    return folder


def test_what_was_written_is_read_and_no_random_number_is_spent(folder: Path) -> None:
    torch.manual_seed(7)
    wanted = torch.rand(1)
    torch.manual_seed(7)
    loaded = load_model_folder(folder)
    assert torch.equal(torch.rand(1), wanted)
    written = safetensors.torch.load((folder / "model.safetensors").read_bytes())
    state = loaded.model.state_dict()
    assert state.keys() == written.keys() == loaded.weights.keys()
    assert all(torch.equal(state[name], written[name]) for name in state)
    assert not any(module.training for module in loaded.model.modules())
    assert (loaded.classes, loaded.config) == (("a", "b", "c"), CONFIG)
    assert (loaded.preprocessing["resize_px"], loaded.preprocessing["crop_px"]) == (18, 16)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def change_weights(name: str, value: torch.Tensor | None) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        weights = safetensors.torch.load(path.read_bytes())
        if value is None:
            del weights[name]
        else:
            weights[name] = value
        path.write_bytes(safetensors.torch.save(weights))

    return change


def write(content: object) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps(content), encoding="utf-8")


OTHER = "the files of the folder belong to different models"


@pytest.mark.parametrize(
    ("name", "damage", "kind", "problem"),
    [
        (
            "model.safetensors",
            cut,
            CheckpointError,
            "is damaged (no whole safetensors file); take it from a whole copy",
        ),
        (
            "model.safetensors",
            change_weights("8.bias", None),
            CheckpointError,
            f"does not fit resnet8_s2 with 3 classes (no 8.bias); {OTHER}",
        ),
        (
            "model.safetensors",
            change_weights("8.bias", torch.zeros(4)),
            CheckpointError,
            f"does not fit resnet8_s2 with 3 classes (8.bias is [4], not [3]); {OTHER}",
        ),
        (
            "model.safetensors",
            change_weights("9.bias", torch.zeros(4)),
            CheckpointError,
            f"does not fit resnet8_s2 with 3 classes (unknown 9.bias); {OTHER}",
        ),
        (
            "model.safetensors",
            change_weights("8.bias", torch.tensor([0.0, float("nan"), 0.0])),
            CheckpointError,
            "does not fit resnet8_s2 with 3 classes (8.bias holds values that are no numbers); "
            + OTHER,
        ),
        (
            "classes.json",
            cut,
            SettingsError,
            "is damaged (not JSON); take it from a whole copy",
        ),
        (
            "classes.json",
            write(["a", "b", "a"]),
            SettingsError,
            "not a list of class names; write the classes of best.yaml",
        ),
        (
            "classes.json",
            write(["a", "b", "c", "d"]),
            SettingsError,
            f"other classes than in best.yaml (4 and 3); {OTHER}",
        ),
        (
            "preprocess.json",
            write([]),
            SettingsError,
            "not a mapping ([]); take it from a whole copy",
        ),
        (
            "preprocess.json",
            write({}),
            SettingsError,
            "color does not fit best.yaml (null, not RGB, EXIF orientation applied); " + OTHER,
        ),
        (
            "best.yaml",
            write({"settings": {}}),
            SettingsError,
            "not a best.yaml (settings or classes are missing); give the folder as a search or "
            "retrain wrote it",
        ),
    ],
)
def test_damage_is_told_in_one_line(
    folder: Path,
    name: str,
    damage: Callable[[Path], object],
    kind: type[TunerError],
    problem: str,
) -> None:
    damage(folder / name)
    with pytest.raises(kind) as caught:
        load_model_folder(folder)
    assert caught.value.problems == (f"{folder / name}: {problem}",)


def refusal(find: Callable[[], Path]) -> str:
    with pytest.raises(SettingsError) as caught:
        find()
    return str(caught.value)


WHAT_TO_GIVE = "give best/ of a search, the output of a retrain, or an export"


def test_a_model_folder_is_found_in_that_of_its_search(folder: Path) -> None:
    search = folder.parent
    (search / "best.yaml").write_text("")
    assert find_model_folder("run", str(search)) == find_model_folder("run", str(folder)) == folder
    (folder / "model.safetensors").unlink()
    assert refusal(lambda: find_model_folder("run", "best")) == (
        f"run: best does not exist; {WHAT_TO_GIVE}"
    )
    assert refusal(lambda: find_model_folder("model", str(folder))).endswith(
        f" is no model folder (model.safetensors missing); {WHAT_TO_GIVE}"
    )
    assert refusal(lambda: find_model_folder("model", str(search / "best.yaml"))).endswith(
        f" is not a folder; {WHAT_TO_GIVE}"
    )


def test_a_place_to_write_is_made_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    assert new_file("to", "a/b/c.csv") == tmp_path / "a" / "b" / "c.csv"
    assert (tmp_path / "a" / "b").is_dir()
    assert new_folder("to", "d/e") == tmp_path / "d" / "e"
    assert new_folder("to", "empty") == tmp_path / "empty"
    assert refusal(lambda: new_file("to", "a")) == "to: a is a folder; give the file to write"
    assert refusal(lambda: new_folder("to", "file")) == (
        "to: file is there already; remove it or give another"
    )
    assert refusal(lambda: new_folder("to", "a")) == (
        "to: a is there already; remove it or give another"
    )
    assert refusal(lambda: new_file("to", "file/x.csv")) == (
        f"to: {tmp_path}/file cannot be made (File exists); give another place"
    )
