"""A function of the user's own is found, called and checked; a mistake in it is one line."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from tuner.errors import SettingsError
from tuner.training.ghost_norm import GhostBatchNorm1d, GhostBatchNorm2d, ghost_size
from tuner.training.keyed_dropout import KeyedDropout
from tuner.training.models import build_model
from tuner.training.own_model import ModelCode, find_code, load_function, look_in

NET = "nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, {classes}))"
HEAD = "import torch\nfrom torch import nn\n\n"

WriteModule = Callable[..., Path]


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteModule]:
    """Give what writes `own_net.py` into the working directory; all of it is forgotten after."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    monkeypatch.chdir(tmp_path)

    def write(text: str, path: str = "own_net.py") -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(HEAD + text, encoding="utf-8")
        return file

    yield write
    for name in set(sys.modules) - before:
        if name.startswith(("own_net", "own_package")):
            del sys.modules[name]


def build(name: str = "own_net:build", num_classes: int = 5) -> nn.Module:
    return build_model(name, num_classes, image_size_px=8, ghost_batch_size=4)


def refusal(name: str = "own_net:build") -> str:
    """Return the one line that a model is refused with, without its beginning."""
    with pytest.raises(SettingsError) as caught:
        build(name)
    (line,) = caught.value.problems
    assert "\n" not in line
    assert line.startswith(f"model.name: {name}: ")
    return line.removeprefix(f"model.name: {name}: ")


@pytest.mark.parametrize(
    "signature",
    [
        "num_classes",
        "*, num_classes",
        "width=3, num_classes=9",
        "classes",
        "classes, /, width=3",
        "**options",
        "*sizes",
    ],
)
def test_a_function_gets_the_class_count_by_its_name_or_as_its_one_argument(
    write_module: WriteModule, signature: str
) -> None:
    given = {"**options": "options['num_classes']", "*sizes": "sizes[0]"}.get(
        signature, "num_classes" if "num_classes" in signature else "classes"
    )
    write_module(f"def build({signature}):\n    return {NET.format(classes=given)}\n")
    assert build()(torch.zeros(2, 3, 8, 8)).shape == (2, 5)


def test_a_class_is_a_function_too_and_a_package_has_modules(write_module: WriteModule) -> None:
    write_module(
        "from own_package.layers import head\n\n"
        "class Net(nn.Sequential):\n"
        "    def __init__(self, num_classes):\n"
        "        super().__init__(nn.Flatten(), head(num_classes))\n",
        "own_package/nets.py",
    )
    write_module("def head(n):\n    return nn.Linear(192, n)\n", "own_package/layers.py")
    assert build("own_package.nets:Net")(torch.zeros(2, 3, 8, 8)).shape == (2, 5)


def test_batch_norm_and_dropout_are_those_of_built_in_models(write_module: WriteModule) -> None:
    write_module(
        "def build(num_classes):\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Dropout2d(0.2),\n"
        "        nn.Flatten(), nn.BatchNorm1d(256), nn.Dropout(0.1),\n"
        "        nn.LazyLinear(num_classes))\n"
    )
    model = build()
    kinds = [type(module) for module in model.children()]
    assert kinds == [
        nn.Conv2d, GhostBatchNorm2d, KeyedDropout, nn.Flatten, GhostBatchNorm1d, KeyedDropout,
        nn.Linear,
    ]  # fmt: skip
    assert ghost_size(model) == 4
    assert model.training
    model(torch.randn(9, 3, 8, 8)).sum().backward()  # what was lazy takes gradients


def test_the_same_seed_draws_the_same_weights(write_module: WriteModule) -> None:
    write_module(f"def build(num_classes):\n    return {NET.format(classes='num_classes')}\n")
    weights = []
    for _ in range(2):
        torch.manual_seed(3)
        weights.append(build().get_parameter("1.weight"))
    assert torch.equal(*weights)


@pytest.mark.parametrize("name", ["own_net:", ":build", "own net:build", "own_net:a:b", "a..b:c"])
def test_a_name_that_can_be_no_function_is_refused(write_module: WriteModule, name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        build(name)
    assert caught.value.problems == (
        f"model.name: not a function's name ({name}); write package.module:function",
    )


def test_a_module_that_is_not_there_is_told_with_where_it_was_sought(
    write_module: WriteModule, tmp_path: Path
) -> None:
    assert refusal("own_nothing:build") == (
        f"no module own_nothing in {tmp_path} or among the installed packages; "
        "start in the folder that holds it, or install it"
    )
    write_module("")
    assert refusal("own_ned:build") == (
        f"no module own_ned in {tmp_path} or among the installed packages; did you mean own_net?"
    )
    assert refusal("own_net.deeper:build").startswith("no module own_net.deeper in ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "import own_missing\n",
            "own_net cannot be imported, ModuleNotFoundError: No module named 'own_missing' "
            "(own_net.py line 4); mend that",
        ),
        (
            "def build(:\n",
            "own_net cannot be imported, SyntaxError: invalid syntax (own_net.py line 4); "
            "mend that",
        ),
        (
            "import sys\nsys.exit('usage')\n",
            "own_net cannot be imported, SystemExit: usage (own_net.py line 5); mend that",
        ),
        ("def biuld(n): ...\n", "no such function in own_net.py; did you mean biuld?"),
        ("", "no such function in own_net.py; name one that is there"),
        (
            "build = 3\n",
            "is no function (int); name one that takes the class count and returns a "
            "torch.nn.Module",
        ),
        (
            "def build(): ...\n",
            "cannot be called with the class count alone (too many positional arguments); "
            "let it take num_classes, and give all else a default",
        ),
        (
            "def build(num_classes, width): ...\n",
            "cannot be called with the class count alone (missing a required argument: 'width'); "
            "let it take num_classes, and give all else a default",
        ),
        (
            "def helper(n):\n    return nn.Linear(n, -1)\n\ndef build(n):\n    return helper(n)\n",
            "raised RuntimeError: Trying to create tensor with negative dimension -1: [-1, 5] "
            "(own_net.py line 5); mend that",
        ),
        ("def build(n):\n    raise KeyError\n", "raised KeyError (own_net.py line 5); mend that"),
        (
            "def build(n):\n    return {'net': 1}\n",
            "returned no model (dict); return a torch.nn.Module",
        ),
        (
            "def build(n):\n    return nn.Linear\n",
            "returned no model (type); return a torch.nn.Module",
        ),
        (
            "class Net(nn.Linear):\n    def forward(self, x):\n        return x.nothing\n\n"
            "def build(n):\n    return Net(3, n)\n",
            "raised AttributeError: 'Tensor' object has no attribute 'nothing' "
            "(own_net.py line 6) for one image of 8 px; mend that, or choose another "
            "data.image_size",
        ),
        (
            "class Net(nn.Linear):\n    def forward(self, x):\n        return x.mean((1, 2, 3))\n\n"
            "def build(n):\n    net = Net(3, n)\n    net.more = nn.LazyLinear(n)\n    return net\n",
            "more.weight has no shape after one image, for nothing uses it; leave it out",
        ),
        (
            "def build(n):\n    return nn.Sequential(nn.Conv2d(3, n, 1),\n"
            "        nn.BatchNorm2d(n, momentum=None))\n",
            "its statistics cannot be taken over ghost groups (1 is a BatchNorm2d with "
            "momentum=None); use nn.BatchNorm2d with weights, running statistics and a momentum, "
            "or GroupNorm",
        ),
    ],
)
def test_a_mistake_in_a_users_model_is_one_line(
    write_module: WriteModule, text: str, line: str
) -> None:
    write_module(text)
    assert refusal() == line


def test_the_code_of_a_model_is_found_below_the_folder_that_python_searched(
    write_module: WriteModule, tmp_path: Path
) -> None:
    function = f"def build(n):\n    return {NET.format(classes='n')}\n"
    write_module(function, "own_package/inner/__init__.py")
    write_module(function, "own_package/nets.py")
    write_module(function)
    sha256 = find_code("own_net:build")
    assert sha256 is not None
    for name, file in (
        ("own_net:build", "own_net.py"),
        ("own_package.nets:build", "own_package/nets.py"),
        ("own_package.inner:build", "own_package/inner/__init__.py"),
    ):
        assert find_code(name) == ModelCode(str(tmp_path), file, sha256.sha256)
    installed = find_code("torchvision.models:resnet18")
    assert installed is not None
    assert (installed.folder, installed.file) == (None, "torchvision/models/__init__.py")


def test_a_recorded_folder_goes_before_the_working_directory(
    write_module: WriteModule, tmp_path: Path
) -> None:
    write_module("def build(n): ...\n")
    recorded = write_module("def build(n): ...\n", "elsewhere/own_net.py")
    look_in(str(recorded.parent), "own_net:build")
    assert load_function("own_net:build").__code__.co_filename == str(recorded)


def test_a_module_that_has_moved_is_found_in_the_working_directory(
    write_module: WriteModule, tmp_path: Path
) -> None:
    there = write_module("def build(n): ...\n")
    look_in(str(tmp_path / "gone"), "own_net:build")
    assert load_function("own_net:build").__code__.co_filename == str(there)
    with pytest.raises(SettingsError) as caught:
        look_in(str(tmp_path / "gone"), "own_nothing.deep:build")
    assert caught.value.problems == (
        f"model.name: own_nothing.deep:build: its module is gone from {tmp_path}/gone; "
        "put it back there, or start in the folder that holds it now",
    )
