import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tuner.training.ghost_norm import (
    GhostBatchNorm2d,
    ghost_size,
    group_sizes,
    use_ghost_batch_norm,
)


def ghost_norm(group_size: int, channels: int = 4) -> GhostBatchNorm2d:
    return GhostBatchNorm2d(channels, ghost_batch_size=group_size, eps=1e-5, momentum=0.1)


@given(st.integers(0, 500), st.integers(1, 80))
def test_groups_cover_all_images_and_only_the_last_differs_in_size(
    num_images: int, group_size: int
) -> None:
    sizes = group_sizes(num_images, group_size)
    assert sum(sizes) == num_images
    assert all(size == group_size for size in sizes[:-1])
    if num_images >= group_size:
        assert all(group_size / 2 <= size <= max(1.5 * group_size, 3) for size in sizes)


@given(st.integers(1, 500), st.integers(1, 80), st.integers(1, 10))
def test_runs_of_whole_groups_are_cut_into_the_same_groups_again(
    num_images: int, group_size: int, run: int
) -> None:
    sizes = group_sizes(num_images, group_size)
    for first in range(0, len(sizes), run):
        part = sizes[first : first + run]
        assert group_sizes(sum(part), group_size) == part


@pytest.mark.parametrize(
    ("num_images", "group_size", "sizes"),
    [
        (70, 32, [32, 38]),
        (79, 32, [32, 47]),
        (80, 32, [32, 32, 16]),
        (5, 32, [5]),
        (1, 32, [1]),
        (5, 2, [2, 3]),
        (3, 1, [1, 1, 1]),
    ],
)
def test_a_remainder_below_half_a_group_joins_the_group_before(
    num_images: int, group_size: int, sizes: list[int]
) -> None:
    assert group_sizes(num_images, group_size) == sizes


def one_by_one(norm: nn.BatchNorm2d, images: Tensor, sizes: list[int]) -> Tensor:
    return torch.cat([norm(part) for part in images.split(sizes)])


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_every_group_is_normalised_as_by_a_batch_norm_of_its_own(
    layout: torch.memory_format,
) -> None:
    torch.manual_seed(0)
    images = torch.randn(19, 4, 3, 5).to(memory_format=layout).requires_grad_()
    twin = images.detach().clone().requires_grad_()
    upstream = torch.randn(19, 4, 3, 5)
    ghost, plain = ghost_norm(8), nn.BatchNorm2d(4)
    with torch.no_grad():
        for parameter, other in zip(ghost.parameters(), plain.parameters(), strict=True):
            other.copy_(parameter.normal_())
    output, expected = ghost(images), one_by_one(plain, twin, [8, 11])
    assert output.is_contiguous(memory_format=layout)
    assert torch.equal(output, expected)
    gradients = torch.autograd.grad(output, (images, *ghost.parameters()), upstream)
    theirs = torch.autograd.grad(expected, (twin, *plain.parameters()), upstream)
    assert torch.equal(gradients[0], theirs[0])
    torch.testing.assert_close(gradients, theirs)
    for name, buffer in plain.named_buffers():
        assert torch.equal(ghost.get_buffer(name), buffer)


def test_gradients_hold_numerically_in_fp64() -> None:
    torch.manual_seed(0)
    norm = ghost_norm(3).double()
    images = torch.randn(7, 4, 2, 2, dtype=torch.float64, requires_grad=True)

    def apply(images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.func.functional_call(norm, {"weight": weight, "bias": bias}, (images,))

    assert torch.autograd.gradcheck(apply, (images, norm.weight, norm.bias))


def test_a_gradient_of_another_layout_is_taken() -> None:
    norm = ghost_norm(2)
    images = torch.randn(6, 4, 3, 3).to(memory_format=torch.channels_last).requires_grad_()
    (expanded,) = torch.autograd.grad(norm(images).sum(), images)
    (dense,) = torch.autograd.grad(norm(images), images, torch.ones(6, 4, 3, 3))
    torch.testing.assert_close(expanded, dense)


def test_one_image_is_normalised_by_running_statistics_and_moves_nothing() -> None:
    norm = ghost_norm(8)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    image = torch.full((1, 4, 1, 1), 3.0)
    torch.testing.assert_close(norm(image), image / (1 + 1e-5) ** 0.5)
    assert all(torch.equal(before[name], value) for name, value in norm.state_dict().items())


def test_evaluation_uses_running_statistics_whatever_the_batch() -> None:
    norm = ghost_norm(2)
    norm(torch.randn(8, 4, 2, 2))
    norm.eval()
    images = torch.randn(5, 4, 2, 2)
    assert torch.equal(norm(images), torch.cat([norm(image[None]) for image in images]))


def test_replacing_keeps_state_dict_values_and_settings() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(nn.BatchNorm2d(4, 0.01, 0.3)))
    nn.init.constant_(model.get_parameter("1.0.weight"), 0.5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert ghost_size(model) == 1
    use_ghost_batch_norm(model, 16)
    assert ghost_size(model) == 16
    norm = model.get_submodule("1.0")
    assert isinstance(norm, GhostBatchNorm2d)
    assert (norm.eps, norm.momentum) == (0.01, 0.3)
    assert list(model.state_dict()) == list(before)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("shape", [(19, 4), (19, 4, 5)])
def test_a_norm_of_features_works_on_groups_too(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, plain = nn.Sequential(nn.BatchNorm1d(4)), nn.BatchNorm1d(4)
    use_ghost_batch_norm(model, 8)
    features = torch.randn(shape, requires_grad=True)
    twin = features.detach().clone().requires_grad_()
    expected = torch.cat([plain(part) for part in twin.split([8, 11])])
    torch.testing.assert_close(model(features), expected)
    upstream = torch.randn(shape)
    torch.testing.assert_close(
        torch.autograd.grad(model(features), features, upstream),
        torch.autograd.grad(expected, twin, upstream),
    )


def test_a_norm_in_several_places_stays_one_and_a_frozen_one_frozen() -> None:
    shared = nn.BatchNorm2d(4)
    shared.weight.requires_grad_(False)
    model = nn.Sequential(shared, nn.ReLU(), shared, nn.Sequential(shared))
    use_ghost_batch_norm(model, 8)
    assert isinstance(model[0], GhostBatchNorm2d)
    assert model[0] is model[2] is model[3][0]  # type: ignore[index]
    assert not model[0].weight.requires_grad
    assert model[0].bias.requires_grad


class OwnNorm(nn.BatchNorm2d):
    """Does something else with its statistics."""


@pytest.mark.parametrize(
    ("norm", "problem"),
    [
        (nn.BatchNorm2d(4, affine=False), "BatchNorm2d with affine=False"),
        (nn.BatchNorm1d(4, momentum=None), "BatchNorm1d with momentum=None"),
        (
            nn.BatchNorm2d(4, track_running_stats=False),
            "BatchNorm2d with track_running_stats=False",
        ),
        (OwnNorm(4), "OwnNorm, not nn.BatchNorm1d or nn.BatchNorm2d itself"),
        (nn.SyncBatchNorm(4), "SyncBatchNorm, not nn.BatchNorm1d or nn.BatchNorm2d itself"),
        (nn.BatchNorm3d(4), "BatchNorm3d, not nn.BatchNorm1d or nn.BatchNorm2d itself"),
    ],
)
def test_a_norm_that_cannot_work_on_groups_is_named(norm: nn.Module, problem: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(norm))
    with pytest.raises(ValueError, match=rf"^1\.0 is a {problem}$"):
        use_ghost_batch_norm(model, 8)
    assert model.get_submodule("1.0") is norm
