import pytest
import torch
from torch import nn
from torchvision.ops import StochasticDepth

from tuner.training.keyed_dropout import (
    KeyedDropout,
    keyed_dropouts,
    set_places,
    use_keyed_dropout,
)
from tuner.training.models import build_model


@pytest.mark.parametrize("mode", ["element", "channel", "row", "batch"])
@pytest.mark.parametrize("shape", [(70, 9216), (70, 1280), (70, 3, 5, 5), (5, 300_000)])
def test_the_mask_of_a_row_does_not_depend_on_the_slice(mode: str, shape: tuple[int, ...]) -> None:
    module = KeyedDropout(0.4, mode=mode, number=1)
    features = torch.ones(shape)
    module.set_place(seed=3, first_row=0)
    whole = module(features)
    for size in (1, 3, 32):
        parts = []
        for first in range(0, len(features), size):
            module.set_place(seed=3, first_row=first)
            parts.append(module(features[first : first + size]))
        assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize(("mode", "same_in"), [("element", 0), ("row", 1), ("batch", 2)])
def test_a_share_is_dropped_and_the_rest_scaled(mode: str, same_in: int) -> None:
    module = KeyedDropout(0.4, mode=mode, number=0)
    num_kept = num_draws = 0
    for seed in range(300):
        module.set_place(seed=seed, first_row=0)
        kept = module(torch.ones(20, 30)) > 0
        if same_in:
            assert torch.equal(kept, kept[:, :1].expand_as(kept))
        if same_in == 2:
            assert kept.all() or not kept.any()
        of_draws = kept[:1, :1] if same_in == 2 else kept[:, :1] if same_in else kept
        num_kept, num_draws = num_kept + int(of_draws.sum()), num_draws + of_draws.numel()
    assert abs(num_kept / num_draws - 0.6) < 4 * (0.24 / num_draws) ** 0.5
    values = module(torch.full((20, 30), 3.0)).unique()
    assert all(value in (0, pytest.approx(5.0)) for value in values.tolist())


def test_steps_modules_calls_and_images_have_masks_of_their_own() -> None:
    masks = []
    for seed, number in ((0, 0), (1, 0), (0, 1)):
        module = KeyedDropout(0.5, mode="element", number=number)
        module.set_place(seed=seed, first_row=0)
        masks += [*module(torch.ones(2, 64)), *module(torch.ones(2, 64))]
    assert len({tuple(mask.tolist()) for mask in masks}) == 12


@pytest.mark.parametrize(
    ("dropout", "shape"),
    [(nn.Dropout1d(0.3), (9, 40, 5)), (nn.Dropout2d(0.3), (9, 40, 5, 3))],
)
def test_whole_channels_are_dropped(dropout: nn.Module, shape: tuple[int, ...]) -> None:
    model = nn.Sequential(dropout)
    use_keyed_dropout(model)
    set_places(keyed_dropouts(model), seed=0, first_row=0)
    kept = (model(torch.ones(shape)) > 0).flatten(2)
    assert torch.equal(kept.all(2), kept.any(2))
    assert len(kept.all(2).unique(dim=0)) == 9  # every image has its own


def test_evaluation_changes_nothing_and_all_can_be_dropped() -> None:
    module = KeyedDropout(1.0, mode="element", number=0)
    features = torch.randn(4, 5)
    assert not module(features).any()
    assert module.eval()(features) is features


def test_the_gradient_is_that_of_the_mask() -> None:
    module = KeyedDropout(0.5, mode="element", number=0)
    features = torch.randn(6, 7, dtype=torch.float64, requires_grad=True)

    def apply(features: torch.Tensor) -> torch.Tensor:
        module.set_place(seed=5, first_row=3)
        result: torch.Tensor = module(features)
        return result

    assert torch.autograd.gradcheck(apply, (features,))


def test_replacing_keeps_the_state_dict_the_modes_and_what_is_shared() -> None:
    shared = nn.Dropout(0.2)
    model = nn.Sequential(
        nn.Linear(2, 2), shared, nn.Sequential(shared, StochasticDepth(0.3, "batch")),
        nn.Dropout(0.0), StochasticDepth(0.1, "row").eval(),
    )  # fmt: skip
    keys = list(model.state_dict())
    use_keyed_dropout(model)
    assert list(model.state_dict()) == keys
    found = keyed_dropouts(model)
    assert [(module.p, module.mode, module.number) for module in found] == [
        (0.2, "element", 0), (0.3, "batch", 1), (0.1, "row", 2),
    ]  # fmt: skip
    assert model[1] is model[2][0]  # type: ignore[index]
    assert [module.training for module in found] == [True, True, False]
    assert isinstance(model[3], nn.Dropout)
    set_places(found, seed=7, first_row=4)
    assert {(module.seed, module.first_row) for module in found} == {(7, 4)}


@pytest.mark.parametrize(("name", "count"), [("efficientnet_b0", 16), ("mobilenet_v3_small", 1)])
def test_a_torchvision_model_drops_by_key_alone(name: str, count: int) -> None:
    model = build_model(name, 3, image_size_px=32, ghost_batch_size=4)
    assert len(keyed_dropouts(model)) == count
    left = [m for m in model.modules() if isinstance(m, nn.Dropout | StochasticDepth) and m.p]
    assert left == []
