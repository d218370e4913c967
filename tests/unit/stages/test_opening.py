"""Which search is meant, where it lies, and what its settings may be."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.stages.conftest import OpenSearch, files_in
from tuner.errors import StudyError
from tuner.settings.config import Config, flatten


def begin(folder: Path) -> None:
    """Leave what a search that was begun in `folder` leaves there first."""
    folder.mkdir(parents=True)
    (folder / "study.journal").touch()


def test_a_search_lies_in_a_folder_of_its_name(here: Path, search_of: OpenSearch) -> None:
    search = search_of()
    assert (search.name, search.folder) == ("tiny", here / "results" / "tiny")
    search = search_of(name="other")
    assert (search.name, search.folder) == ("other", here / "results" / "other")
    assert search_of("data.source=folder", "data.root=/my/imgs").name == "tiny-imgs"
    assert files_in(here) == ["tiny.yaml"]


def test_the_cache_lies_beside_the_searches_unless_the_settings_say_where(
    here: Path, search_of: OpenSearch
) -> None:
    assert search_of().cache_root == here / "results" / ".cache"
    assert search_of("data.cache_root=shared").cache_root == here / "shared"


def test_never_begins_a_search_beside_those_that_were_begun(
    here: Path, search_of: OpenSearch
) -> None:
    assert search_of(resume="never").name == "tiny"
    begin(here / "results" / "tiny")
    begin(here / "results" / "tiny-2")
    (here / "results" / "tiny-3").mkdir()  # of a refused start
    assert search_of(resume="auto").name == "tiny"
    assert search_of(resume="never").name == "tiny-3"
    assert search_of(resume="never").folder == here / "results" / "tiny-3"
    assert search_of(resume="never", name="other").name == "other"


def test_must_goes_on_with_a_search_that_was_begun_alone(here: Path, search_of: OpenSearch) -> None:
    folder = here / "results" / "tiny"
    folder.mkdir(parents=True)
    with pytest.raises(StudyError) as caught:
        search_of(resume="must")
    assert caught.value.problems == (
        f"resume: there is no search to go on with ({folder}); use resume=auto",
    )
    (folder / "study.journal").touch()
    assert search_of(resume="must").folder == folder


def without_rights_of_root(*command: str) -> list[str]:
    """Return the command such that root too may only do what the mode of a folder allows."""
    without = "--bounding-set=-dac_override,-dac_read_search"
    return ["setpriv", without, *command] if os.geteuid() == 0 else [*command]


@pytest.mark.parametrize(
    ("closed", "more"),
    [
        ("shut", "resume=auto"),
        ("shut/deep", "resume=never"),
        ("shut/deep/tiny", "resume=must"),
        ("shut/deep/tiny", "dry_run=true"),
    ],
)
def test_an_output_that_this_user_may_not_look_into_is_refused_in_one_line(
    here: Path, closed: str, more: str
) -> None:
    (here / "shut" / "deep" / "tiny").mkdir(parents=True)
    (here / closed).chmod(0o600)
    arguments = ("space=tiny.yaml", "output=shut/deep", more)
    command = without_rights_of_root(sys.executable, "-m", "tuner.search", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (here / closed).chmod(0o700)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        f"error: output: {here}/shut/deep cannot be used (Permission denied); "
        "use another output=…\n",
    )
    assert files_in(here / "shut") == ["deep", "deep/tiny"]


@pytest.mark.parametrize(
    ("overrides", "key", "values"),
    [
        ([], "train.batch_size", (16, 64, 32)),
        ([], "optim.lr", (1e-3, 1.0)),
        ([], "model.name", ("lenet",)),
        ([], "train.clip_norm", (None,)),
        (["train.batch_size=8"], "train.batch_size", (8,)),
        (["parameters.train.batch_size={log_int: [8, 99]}"], "train.batch_size", (8, 99)),
        ([], "loader.num_workers", (0,)),
    ],
)
def test_a_key_may_have_its_choices_its_bounds_or_its_one_value(
    search_of: OpenSearch, overrides: list[str], key: str, values: tuple[Any, ...]
) -> None:
    assert search_of(*overrides).possible_values(key) == values


def test_settings_of_a_search_can_be_pinned(search_of: OpenSearch) -> None:
    search = search_of()
    pinned = search.with_settings({"loader.num_workers": 1})
    assert flatten(pinned.config) == flatten(search.config) | {"loader.num_workers": 1}
    assert (pinned.name, pinned.folder) == (search.name, search.folder)
    assert pinned.space.parameters == search.space.parameters
    assert search.config.loader.num_workers == 0


@pytest.mark.parametrize(
    ("overrides", "rungs"),
    [
        ([], (1000, 3000, 9000)),
        (["search.grace_epochs=2"], (2000, 6000, 9000)),
        (["train.epochs=1"], (1000,)),
        (["search.reduction_factor=2"], (1000, 2000, 4000, 9000)),
        (["search.grace_epochs=1", "train.report_epochs=0.3333333333333333"], (999, 2997, 9000)),
    ],
)
def test_rungs_lie_where_reports_fall_due(
    search_of: OpenSearch, overrides: list[str], rungs: tuple[int, ...]
) -> None:
    assert search_of(*overrides).rungs(1000) == rungs


def test_settings_are_those_of_the_space_over_the_defaults(search_of: OpenSearch) -> None:
    changed = {"data.image_size": 16, "model.name": "lenet", "search.trials": 7}
    assert flatten(search_of().config) == flatten(Config()) | changed | {"search.grace_epochs": 1}
