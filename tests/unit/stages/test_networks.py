"""The models of a search are checked once, with their weights, and what fits is written down."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from tests.unit.stages.conftest import OpenSearch
from tuner.assemble import build_net
from tuner.data.index import ImageIndex
from tuner.data.prepare import PreparedData
from tuner.errors import SettingsError, StudyError
from tuner.search_logic.points import Points
from tuner.settings.config import Config
from tuner.stages.course import open_course, plan_course
from tuner.stages.networks import (
    check_networks,
    combinations,
    recorded_sha256,
    say_weights,
    write_fitted,
)
from tuner.stages.train import open_record

ON_LENET = ("data.image_size=16", "model.name=lenet")


@pytest.fixture
def weights(here: Path) -> Path:
    """Return a file of weights of a lenet with 7 classes."""
    path = here / "w.pt"
    torch.save(build_net(Config().with_overrides({"model.name": "lenet"}), 7).state_dict(), path)
    return path


def prepared() -> PreparedData:
    index = ImageIndex.from_paths("train", Path(), ("a", "b"), ["0", "1"], [0, 1])
    return PreparedData(
        index, index, fingerprint="f00d", images_fingerprint="", notes=(), record="{}"
    )


def test_every_model_is_checked_with_every_file_that_it_may_get(
    search_of: OpenSearch, weights: Path
) -> None:
    search = search_of(
        "parameters.model.name=[lenet, resnet8]",
        "parameters.model.weights={choices: [null, w.pt], when: {model.name: lenet}}",
    )
    found = [(each.model.name, each.model.weights) for each in combinations(search)]
    assert set(found) == {("lenet", None), ("lenet", str(weights)), ("resnet8", None)}
    (fitted,) = check_networks(search, 7)
    assert (fitted.model, fitted.path, fitted.fit.loaded_share) == ("lenet", str(weights), 1.0)


def test_what_fits_is_said_in_one_line_and_written_in_full(
    search_of: OpenSearch, weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = search_of(*ON_LENET, "model.weights=w.pt")
    fitted = check_networks(search, 10)
    say_weights(fitted)
    assert capsys.readouterr().out.splitlines() == [
        "weights   w.pt: 98.6% of lenet's parameters, 8 tensors loaded, 0 missing, 0 unexpected, "
        "2 of another shape (12.weight, 12.bias)"
    ]
    write_fitted(search.folder.parent / "weights.json", ())
    search.folder.mkdir(parents=True)
    write_fitted(search.folder / "weights.json", fitted)
    (row,) = json.loads((search.folder / "weights.json").read_text())
    assert row["mismatched"] == [["12.weight", [7, 84], [10, 84]], ["12.bias", [7], [10]]]
    assert (row["model"], row["path"], len(row["loaded"])) == ("lenet", str(weights), 8)
    assert not (search.folder.parent / "weights.json").exists()


def test_a_plan_says_what_fits_before_anything_starts(
    search_of: OpenSearch, weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_course(search_of(*ON_LENET, "model.weights=w.pt"), is_dry_run=True)
    assert "\nweights   w.pt: 98.6% of lenet's parameters, " in capsys.readouterr().out


def test_weights_that_do_not_fit_are_refused_before_anything_starts(
    search_of: OpenSearch, weights: Path
) -> None:
    with pytest.raises(SettingsError, match=r"^model\.weights: .*w\.pt: fits 0% of resnet8's"):
        plan_course(search_of("model.name=resnet8", "model.weights=w.pt"))
    with pytest.raises(SettingsError) as caught:
        search_of("model.weights=gone.pt")
    assert caught.value.problems == (
        f"model.weights: {weights.parent}/gone.pt: cannot be read (No such file or directory); "
        "give a safetensors file or a state dict, or null",
    )


def test_a_users_model_is_checked_for_the_classes_that_there_are(
    here: Path, search_of: OpenSearch
) -> None:
    (here / "net_of_seven.py").write_text(
        "from torch import nn\n"
        "def build(classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(768, 7))\n"
    )
    search = search_of("data.image_size=16", "model.name=net_of_seven:build")
    assert check_networks(search, 7) == ()
    with pytest.raises(SettingsError) as caught:
        plan_course(search)
    assert caught.value.problems == (
        "model.name: net_of_seven:build: gave outputs of shape (3, 7) for black images at "
        "evaluation; give (3, 10): a number for each image and class",
    )


def test_a_search_goes_on_with_the_weights_it_began_with_wherever_they_lie(
    search_of: OpenSearch, weights: Path
) -> None:
    content = weights.read_bytes()

    def open_with(path: str) -> None:
        search = search_of(*ON_LENET, f"model.weights={path}")
        search.folder.mkdir(parents=True, exist_ok=True)
        record = open_record(search, prepared(), Points())
        recorded = recorded_sha256(search, record.settings, search.config.model.weights)
        assert recorded == sha256(content).hexdigest()

    open_with("w.pt")
    weights.rename(weights.with_name("moved.pt"))
    open_with("moved.pt")
    weights.write_bytes(b"others")
    with pytest.raises(StudyError) as caught:
        open_with("w.pt")
    before, now = (sha256(each).hexdigest()[:12] for each in (content, b"others"))
    assert caught.value.problems == (
        f"{weights.parent}/results/tiny: model.weights was a file of SHA-256 {before}… and is now "
        f"a file of SHA-256 {now}…",
        "change it back, or begin a new search from the best of this one: "
        "resume=never search.points=results/tiny",
    )


def test_of_several_files_each_is_known_by_its_place(search_of: OpenSearch, weights: Path) -> None:
    search = search_of("parameters.model.weights=[null, w.pt]")
    settings = {"model.weights_sha256": [None, "f00d"]}
    assert recorded_sha256(search, settings, str(weights)) == "f00d"
    assert recorded_sha256(search, settings, None) is None
