"""A space file and the command line over it become one checked `Space`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.errors import SettingsError
from tuner.settings.config import Config
from tuner.settings.load import Space, find_space, load_settings, load_space
from tuner.settings.space import ChoiceSpec, FloatSpec

FILE = """
optim: {lr: 0.5, momentum: 0.8}
train:
search: {seed: 7}
parameters:
  optim.lr: {log: [1e-3, 1]}
  optim.name: [sgd, adam]
  optim.momentum: {float: [0.1, 0.9], when: {optim.name: sgd}}
throughput:
  loader.num_workers: [0, 1]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter an empty folder with `search_spaces/mine.yaml` in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "mine.yaml").write_text(FILE)
    return tmp_path


def problems_of(load: Callable[[], object]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load()
    return list(caught.value.problems)


def written(text: str) -> str:
    Path("search_spaces/wrong.yaml").write_text(text)
    return "wrong"


def test_a_space_file_gives_settings_and_what_is_searched() -> None:
    assert load_space("mine", []) == Space(
        name="mine",
        config=Config().with_overrides({"optim.lr": 0.5, "optim.momentum": 0.8, "search.seed": 7}),
        parameters={
            "optim.lr": FloatSpec(1e-3, 1.0, log=True),
            "optim.name": ChoiceSpec(("sgd", "adam")),
            "optim.momentum": FloatSpec(0.1, 0.9, when=(("optim.name", "sgd"),)),
        },
        throughput={"loader.num_workers": ChoiceSpec((0, 1))},
        notes=(),
    )


def test_a_space_is_found_by_path_from_anywhere(
    hostile_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = hostile_tmp_path / "my space.yml"
    file.write_text(FILE)
    monkeypatch.chdir(hostile_tmp_path)
    assert load_space(str(file), []).name == "my space"
    assert load_space("my space.yml", []) == load_space(str(file), [])


def test_shipped_spaces_are_found_from_any_folder_and_one_of_your_own_goes_before() -> None:
    assert find_space("imagenet_small").is_absolute()
    Path("search_spaces/imagenet_small.yaml").write_text("")
    assert find_space("imagenet_small") == Path("search_spaces/imagenet_small.yaml")


def test_an_unknown_space_lists_those_there_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.settings.load.PACKAGE", folder / "installed")
    (folder / "installed" / "search_spaces").mkdir(parents=True)
    (folder / "installed" / "search_spaces" / "shipped.yaml").write_text("")
    overrides = ["optim.lrr=1", "search.trials=0"]
    assert problems_of(lambda: load_space("shiped", overrides)) == [
        "space: no such search space (shiped); use mine, shipped or the path of a .yaml file; "
        "did you mean shipped?",
        "optim.lrr: no such setting; did you mean optim.lr?",
        "search.trials: not allowed (0); use a whole number from 1 to 1000000000",
    ]


def test_a_space_name_is_no_way_out_of_the_folder() -> None:
    Path("outside.yaml").write_text("")
    (line,) = problems_of(lambda: load_space("../outside", []))
    assert line.startswith("space: no such search space (../outside); use ")


def test_an_override_of_a_searched_key_fixes_it_and_says_so() -> None:
    space = load_space("mine", ["optim.lr=1e-1", "loader.num_workers=2"])
    assert (space.config.optim.lr, space.config.loader.num_workers) == (0.1, 2)
    assert list(space.parameters) == ["optim.name", "optim.momentum"]
    assert space.throughput == {}
    assert space.notes == (
        "optim.lr: fixed at 0.1 by the command line, not searched",
        "loader.num_workers: fixed at 2 by the command line, not searched",
    )


def test_fixing_a_key_settles_the_conditions_on_it() -> None:
    sgd = load_space("mine", ["optim.name=sgd"])
    adam = load_space("mine", ["optim.name=adam"])
    assert sgd.parameters["optim.momentum"] == FloatSpec(0.1, 0.9)
    assert list(adam.parameters) == ["optim.lr"]
    assert adam.notes == (
        "optim.name: fixed at adam by the command line, not searched",
        "optim.momentum: not searched, its condition is ruled out",
    )


def test_the_command_line_adds_changes_removes_and_moves_what_is_searched() -> None:
    space = load_space(
        "mine",
        [
            "parameters.optim.lr={log: [1e-2, 1]}",
            "parameters.optim.name=null",
            "parameters.train.batch_size=[32, 64]",
            "parameters.loader.num_workers=[1, 2]",
            "throughput.loader.num_workers=null",
        ],
    )
    assert space.parameters == {
        "optim.lr": FloatSpec(1e-2, 1.0, log=True),
        "optim.momentum": FloatSpec(0.1, 0.9),
        "train.batch_size": ChoiceSpec((32, 64)),
        "loader.num_workers": ChoiceSpec((1, 2)),
    }
    assert (space.throughput, space.notes) == ({}, ())


OF_A_SET = "data: {source: torchvision, dataset: CIFAR10, root: /sets, download: true}"


def test_what_only_the_source_of_the_space_uses_is_set_aside_for_another() -> None:
    name = written(OF_A_SET)
    space = load_space(name, ["data.source=folder", "data.root=/images"])
    asked = Config().with_overrides({"data.source": "folder", "data.root": "/images"})
    assert space.config == asked
    assert space.notes == (
        "data.dataset=CIFAR10, data.download=true: set aside, not used by data.source=folder",
    )
    assert load_space(name, ["data.source=csv"]).config.data.root == "/sets"
    generated = load_space(name, ["data.source=generated", "optim.lr=1"])
    assert generated.config == Config().with_overrides({"optim.lr": 1})
    assert generated.notes == (
        "data.dataset=CIFAR10, data.root=/sets, data.download=true: set aside, "
        "not used by data.source=generated",
    )
    other = load_space(name, ["data.source=torchvision", "data.dataset=CIFAR100"])
    assert (other.config.data.dataset, other.config.data.download) == ("CIFAR100", True)
    assert other.notes == ()


def test_what_a_best_yaml_says_for_another_source_is_set_aside_as_well() -> None:
    given = {"data": {"source": "torchvision", "dataset": "CIFAR10", "root": "/sets"}}
    config = load_settings(given, Path("best.yaml"), ["data.source=folder", "data.root=/images"])
    assert config == Config().with_overrides({"data.source": "folder", "data.root": "/images"})


def test_what_the_command_line_asks_for_is_never_set_aside() -> None:
    overrides = ["data.source=folder", "data.dataset=CIFAR10", "data.root=/images"]
    assert problems_of(lambda: load_space(written(OF_A_SET), overrides)) == [
        "data.dataset: not used by data.source=folder (CIFAR10); "
        "add data.source=torchvision or data.dataset=null",
    ]
    assert problems_of(lambda: load_space(written(OF_A_SET), ["data.root=null"])) == [
        "data.root: missing (null); data.source=torchvision needs a folder, data.root=FOLDER"
    ]


def test_a_conflict_inside_a_space_file_stays_one() -> None:
    name = written("data: {source: folder, dataset: CIFAR10, root: /sets}")
    assert problems_of(lambda: load_space(name, ["optim.lr=1"])) == [
        "search_spaces/wrong.yaml: data.dataset: not used by data.source=folder (CIFAR10); "
        "add data.source=torchvision or data.dataset=null",
    ]


def test_paths_are_made_absolute_where_the_command_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    overrides = ["data.source=folder", "data.root=./my imgs/../imgs", "data.cache_root=~/cache"]
    data = load_space("mine", [*overrides, "data.test_root=later"]).config.data
    assert (data.root, data.cache_root) == (str(folder / "imgs"), "/home/me/cache")
    assert data.test_root == str(folder / "later")


def test_weights_are_named_by_path_also_where_they_are_searched(folder: Path) -> None:
    assert load_space("mine", ["model.weights=w.pt"]).config.model.weights == str(folder / "w.pt")
    space = load_space("mine", ["parameters.model.weights=[null, a.pt, ../b.pt]"])
    choices = (None, str(folder / "a.pt"), str(folder.parent / "b.pt"))
    assert space.parameters["model.weights"] == ChoiceSpec(choices)
    path = Path("best.yaml").absolute()
    assert load_settings({}, path, ["model.weights=w.pt"]).model.weights == str(folder / "w.pt")


@pytest.mark.parametrize("name", ["DEFAULT", "IMAGENET1K_V2", "ResNet18_Weights.DEFAULT"])
def test_weights_by_name_are_refused_for_they_would_be_downloaded(name: str) -> None:
    assert problems_of(lambda: load_space("mine", [f"model.weights={name}"])) == [
        f"model.weights: weights by name are not downloaded ({name}); "
        "use the path of a safetensors file or a state dict"
    ]


def test_mistakes_of_file_and_command_line_are_told_together_with_their_place() -> None:
    name = written(
        """
optm: {lr: 1}
optim: {lrr: 1, lr: 0}
augment: 5
train: {epochs: 3, batch_size: 64}
search: {grace_epochs: 5}
parameters:
  optim.weight_decay: {log: [0, 0.1]}
  train.epochs: {int: [1, 3]}
  data.image_size: [32, 64]
  mining.ratio: [0, 0.5]
  mining.hard_fraction: {float: [0.1, 0.5]}
  optim.momentum: {float: [0, 1]}
throughput:
  model.name: [lenet]
"""
    )
    where = "search_spaces/wrong.yaml"
    assert problems_of(lambda: load_space(name, ["train.acumulate_steps=1", "x.y"])) == [
        f"{where}: optm: no such section; did you mean optim?",
        f"{where}: augment: not a section (5); write name: value lines under it",
        f"{where}: parameters.optim.weight_decay: lower bound is not above 0 (log: [0, 0.1]); "
        "orders of magnitude begin above 0",
        f"{where}: parameters.train.epochs: cannot be searched; trials must stay comparable",
        f"{where}: parameters.data.image_size: cannot be searched; trials must stay comparable",
        f"{where}: parameters.mining.ratio: not allowed (0.5); use 0 or a number from 1 up",
        f"{where}: parameters.optim.momentum: not allowed (1.0); use a number from 0 and below 1",
        f"{where}: throughput.model.name: changes more than the speed; search it under parameters, "
        "or use loader.num_workers, loader.prefetch_factor or train.accumulate_steps",
        f"{where}: optim.lrr: no such setting; did you mean optim.lr?",
        f"{where}: optim.lr: not allowed (0); use a number above 0",
        "train.acumulate_steps: no such setting; did you mean train.accumulate_steps?",
        f"{where}: search.grace_epochs: 5 is above train.epochs (3); use at most 3",
        "x.y: not a setting; write key=value",
    ]


@pytest.mark.parametrize(
    ("override", "line"),
    [
        (
            "search.grace_epochs=10",
            "search.grace_epochs: 10 is above train.epochs (9); use at most 9",
        ),
        (
            "parameters.optim.lrr=[1]",
            "parameters.optim.lrr: no such setting; did you mean optim.lr?",
        ),
        (
            "parameters.optim.name=[]",
            "parameters.optim.name: no choices ([]); list at least one value",
        ),
        ("parameters.optim.lr=[x]", "parameters.optim.lr: not allowed (x); use a number above 0"),
        (
            "parameters.optim.lr={log: [1, 1e-3]}",
            "parameters.optim.lr: bounds are swapped (log: [1, 0.001]); write [0.001, 1]",
        ),
        (
            "parameters.optim.momentum={float: [0, 0.5], when: {optim.name: adm}}",
            "parameters.optim.momentum: when: optim.name never takes this value (adm)",
        ),
        (
            "throughput.train.accumulate_steps=[1, 256]",
            "train.accumulate_steps: 256 is above train.batch_size (128); use at most 128",
        ),
        (
            "parameters.loader.num_workers=[1, 2]",
            "loader.num_workers: in both parameters and throughput; remove one, "
            "throughput.loader.num_workers=null",
        ),
    ],
)
def test_a_mistake_on_the_command_line_has_no_file_before_it(override: str, line: str) -> None:
    assert problems_of(lambda: load_space("mine", [override])) == [line]


def test_a_key_is_not_both_fixed_and_searched_by_the_command_line() -> None:
    overrides = ["optim.lr=1", "parameters.optim.lr=[1, 2]"]
    assert problems_of(lambda: load_space("mine", overrides)) == [
        "optim.lr: both fixed and searched; give one of them"
    ]


def test_every_combination_of_searched_values_must_be_valid() -> None:
    overrides = ["parameters.train.batch_size=[2, 8]", "throughput.train.accumulate_steps=[1, 4]"]
    assert problems_of(lambda: load_space("mine", overrides)) == [
        "train.accumulate_steps: 4 is above train.batch_size (2); use at most 2"
    ]


def test_settings_of_a_file_take_overrides_and_name_the_file_in_its_mistakes() -> None:
    file = Path("best.yaml")
    config = load_settings({"optim": {"lr": 0.5}, "train": {"epochs": 3}}, file, ["train.epochs=6"])
    assert config == Config().with_overrides({"optim.lr": 0.5, "train.epochs": 6})
    overrides = ["parameters.optim.lr=[1]", "train.epochs=0"]
    assert problems_of(lambda: load_settings({"optim": {"lrr": 0.5}}, file, overrides)) == [
        "best.yaml: optim.lrr: no such setting; did you mean optim.lr?",
        "parameters.optim.lr: no such setting; did you mean optim.lr?",
        "train.epochs: not allowed (0); use a whole number from 1 to 1000000000",
    ]


def test_a_range_over_values_that_are_not_allowed_is_refused() -> None:
    def problems(spec: str) -> list[str]:
        return problems_of(
            lambda: load_space("imagenet_small", [f"parameters.mining.ratio={spec}"])
        )

    for kind in ("float: [0, 3]", "float: [0, 0.5]"):
        assert len(problems(f"{{{kind}}}")) == 1
    assert problems("{float: [0, 3]}") == [
        "parameters.mining.ratio: not all values from 0.0 to 3.0 are allowed; "
        "use 0 or a number from 1 up, or choices of these"
    ]
    for kind in ("float: [1, 3]", "int: [0, 3]", "choices: [0, 1.5]"):
        assert load_space("imagenet_small", [f"parameters.mining.ratio={{{kind}}}"]).parameters


def test_a_sampler_that_cannot_propose_the_parameters_is_refused_where_it_is_asked_for() -> None:
    line = (
        "search.sampler: grid tries every value, and parameters.optim.{} is a range ({}); "
        "list choices or use another sampler"
    )
    momentum = '{"float": [0.1, 0.9], "when": {"optim.name": "sgd"}}'
    lr, momentum = (
        line.format("lr", '{"log": [0.001, 1.0]}'),
        line.format("momentum", momentum),
    )
    assert problems_of(lambda: load_space("mine", ["search.sampler=grid"])) == [lr, momentum]
    listed = ["parameters.optim.lr=[0.1, 1]", "optim.momentum=0.9"]
    space = load_space("mine", ["search.sampler=grid", *listed])
    assert space.config.search.sampler == "grid"
    name = written(FILE.replace("seed: 7", "seed: 7, sampler: grid"))
    where = "search_spaces/wrong.yaml: "
    assert problems_of(lambda: load_space(name, [])) == [where + lr, where + momentum]
