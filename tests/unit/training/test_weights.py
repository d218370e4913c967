"""First weights from a file: what fits is copied, what does not is told, too little is refused."""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from tuner.errors import SettingsError
from tuner.training.models import build_model
from tuner.training.weights import WeightsFit, load_partial, load_weights, read_weights


def net(num_classes: int = 3, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(32, num_classes)
    )


def saved(value: Any, path: Path) -> Path:
    torch.save(value, path)
    return path


def refusal(path: Path) -> str:
    """Return the one line that a file is refused with, without its beginning."""
    with pytest.raises(SettingsError) as caught:
        load_weights(net(), "mine", path)
    (line,) = caught.value.problems
    assert "\n" not in line
    return line.removeprefix(f"model.weights: {path}: ")


def same(one: nn.Module, other: nn.Module) -> bool:
    states = (one.state_dict(), other.state_dict())
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


WRAPPED: dict[str, Callable[[dict[str, Tensor]], Any]] = {
    "bare": lambda state: state,
    "state_dict": lambda state: {"state_dict": state, "epoch": 7},
    "model": lambda state: {"model": state, "optimizer": {"lr": 0.1}},
    "both": lambda state: {"model": {"state_dict": state}},
    "parallel": lambda state: {f"module.{name}": value for name, value in state.items()},
    "compiled": lambda state: {f"_orig_mod.module.{name}": value for name, value in state.items()},
    "beside others": lambda state: OrderedDict(state, note="by hand"),
}


@pytest.mark.parametrize("how", WRAPPED)
def test_a_state_dict_is_found_in_its_usual_wrappers(how: str, tmp_path: Path) -> None:
    path = saved(WRAPPED[how](net(seed=1).state_dict()), tmp_path / "w.pth")
    model = net(seed=2)
    fit = load_weights(model, "mine", path)
    assert same(model, net(seed=1))
    assert fit == WeightsFit(tuple(model.state_dict()), (), (), (), 1.0)
    assert fit.told() == ("9 tensors loaded, 0 missing, 0 unexpected, 0 of another shape")


def test_a_safetensors_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(net(seed=1).state_dict(), path)
    model = net(seed=2)
    assert load_weights(model, "mine", path).loaded_share == 1.0
    assert same(model, net(seed=1))


def test_everything_that_does_not_fit_is_listed_and_stays_as_it_was_drawn() -> None:
    model, weights = net(num_classes=4, seed=1), net(num_classes=3, seed=2).state_dict()
    del weights["1.weight"], weights["1.num_batches_tracked"]
    weights["fc.weight"] = torch.zeros(2)
    fit = load_partial(model, weights)
    assert fit == WeightsFit(
        loaded=("0.weight", "0.bias", "1.bias", "1.running_mean", "1.running_var"),
        missing=("1.weight",),
        unexpected=("fc.weight",),
        mismatched=(("3.weight", (3, 32), (4, 32)), ("3.bias", (3,), (4,))),
        loaded_share=(216 + 8 + 8) / (216 + 8 + 8 + 8 + 132),
    )
    drawn, given = net(num_classes=4, seed=1), net(num_classes=3, seed=2)
    for name in ("3.weight", "3.bias"):
        assert torch.equal(model.get_parameter(name), drawn.get_parameter(name))
    assert torch.equal(model.get_parameter("0.weight"), given.get_parameter("0.weight"))
    assert fit.told() == (
        "5 tensors loaded, 1 missing (1.weight), 1 unexpected (fc.weight), "
        "2 of another shape (3.weight, 3.bias)"
    )


def test_the_model_shares_nothing_with_what_was_loaded() -> None:
    weights = net(seed=1).state_dict()
    model = net(seed=2)
    load_partial(model, weights)
    for tensor in weights.values():
        tensor.zero_()
    assert same(model, net(seed=1))


def test_half_precision_weights_become_the_models_own_kind() -> None:
    model = net(seed=2)
    load_partial(model, {name: value.half() for name, value in net(seed=1).state_dict().items()})
    weight = model.get_parameter("0.weight")
    assert weight.dtype == torch.float32
    torch.testing.assert_close(weight, net(seed=1).get_parameter("0.weight"), rtol=1e-3, atol=1e-4)


def test_torchvisions_own_file_fits_a_model_with_ghost_batch_norm() -> None:
    from torchvision.models import resnet18

    weights = resnet18(weights=None, num_classes=1000).state_dict()
    model = build_model("resnet18", 7, image_size_px=32, ghost_batch_size=4)
    fit = load_partial(model, weights)
    assert (fit.missing, fit.unexpected) == ((), ())
    assert [name for name, _, _ in fit.mismatched] == ["fc.weight", "fc.bias"]
    assert fit.loaded_share > 0.99


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    others = {f"layer{number}": torch.zeros(2) for number in range(4)}
    assert refusal(saved(others, tmp_path / "w.pt")) == (
        "fits 0% of mine's parameters (0 tensors loaded, 8 missing (0.weight, 0.bias, 1.weight, "
        "…), 4 unexpected (layer0, layer1, layer2, …), 0 of another shape); "
        "use weights of this model: 50% must fit"
    )


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    state = net().state_dict()
    state["3.bias"][0] = float("nan")
    assert refusal(saved(state, tmp_path / "w.pt")) == (
        "holds NaN or infinite values (3.bias); use weights of a training that did not diverge"
    )


class Custom:
    """What a pickle may hold, and torch does not build."""


def test_a_file_that_is_missing_a_folder_or_damaged_is_one_line(tmp_path: Path) -> None:
    damaged = saved(net().state_dict(), tmp_path / "damaged.pt")
    damaged.write_bytes(damaged.read_bytes()[:-300])
    torn = tmp_path / "torn.safetensors"
    safetensors.torch.save_file(net().state_dict(), torn)
    torn.write_bytes(torn.read_bytes()[:-30])
    empty = tmp_path / "empty.pt"
    empty.touch()
    what_else = "give a safetensors file or a state dict, or null"
    assert refusal(tmp_path / "gone.pt") == (
        f"cannot be read (No such file or directory); {what_else}"
    )
    assert refusal(tmp_path / "gone.safetensors") == (
        f"cannot be read (No such file or directory); {what_else}"
    )
    assert refusal(tmp_path) == f"cannot be read (Is a directory); {what_else}"
    refused = "is damaged, or no state dict (torch refuses it: {}); give another"
    assert refusal(damaged) == refused.format("OSError")
    assert refusal(empty) == refused.format("EOFError")
    assert refusal(torn) == "is damaged, or no safetensors file; give another"


def test_a_pickle_with_code_in_it_is_refused_and_not_run(tmp_path: Path) -> None:
    for value, name in ((net(), "torch.nn.modules.container.Sequential"), (Custom(), "Custom")):
        line = refusal(saved(value, tmp_path / "w.pt"))
        assert line.startswith("holds objects that could run code (")
        assert name in line
        assert line.endswith(
            "), and is not read; save the state dict alone: torch.save(model.state_dict(), …)"
        )


@pytest.mark.parametrize(
    ("value", "kind"), [([1, 2], "list"), ({"epoch": 3}, "dict"), (torch.zeros(3), "Tensor")]
)
def test_a_file_without_tensors_by_name_is_refused(tmp_path: Path, value: Any, kind: str) -> None:
    assert refusal(saved(value, tmp_path / "w.pt")) == (
        f"holds no tensors by name ({kind}); save a model's state_dict()"
    )


def lines_said_of(path: Path) -> tuple[str, ...]:
    """Return what a file is refused with; nothing where it is read."""
    try:
        read_weights(path)
    except SettingsError as error:
        return error.problems
    return ()


def test_any_bytes_give_tensors_or_one_line(tmp_path: Path) -> None:
    whole = saved(net().state_dict(), tmp_path / "whole.pt").read_bytes()
    draw = torch.Generator().manual_seed(0)
    for _ in range(60):
        place, byte = torch.randint(len(whole), (2,), generator=draw).tolist()
        changed = whole[:place] + bytes([byte % 256]) + whole[place + 1 :]
        for name, data in (("a.pt", changed), ("a.safetensors", changed), ("b.pt", whole[:place])):
            (tmp_path / name).write_bytes(data)
            said = lines_said_of(tmp_path / name)
            assert len(said) <= 1
            assert "\n" not in "".join(said)
