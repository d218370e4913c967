"""Batch normalisation over ghost groups of a fixed size, whatever the slice of the batch.

Ghost groups (Hoffer et al. 2017, arXiv:1705.08741) make slicing a matter of memory alone:
statistics belong to the group, and a slice of whole groups sees the groups of the whole batch.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from tuner.training.replace import replace_modules

ALL_GRADIENTS = [True, True, True]  # of input, weight and bias


def group_sizes(num_images: int, group_size: int) -> list[int]:
    """Return the sizes of the ghost groups that `num_images` images are cut into, in order.

    A remainder below half a group, or of one image, joins the group before it. Any run of whole
    groups is cut into the same groups again.
    """
    num_groups, remainder = divmod(num_images, group_size)
    sizes = [group_size] * num_groups
    if not remainder:
        return sizes
    if sizes and (remainder == 1 or 2 * remainder < group_size):
        sizes[-1] += remainder
        return sizes
    return [*sizes, remainder]


class GhostBatchNorm(_BatchNorm):
    """Batch normalisation whose training statistics are those of `ghost_batch_size` images.

    Running statistics move once per group, so they do not depend on slicing either. One single
    image is normalised by the running statistics and moves nothing. State dict as BatchNorm.
    """

    def __init__(self, num_features: int, *, ghost_batch_size: int, eps: float, momentum: float):
        super().__init__(num_features, eps=eps, momentum=momentum)
        self.ghost_batch_size = ghost_batch_size

    def forward(self, images: Tensor) -> Tensor:
        """Return the normalised images, (n, channels, ...)."""
        mean, variance, tracked = self.running_mean, self.running_var, self.num_batches_tracked
        assert mean is not None
        assert variance is not None
        assert tracked is not None
        momentum = self.momentum or 0.0
        learns = self.training and len(images) > 1
        sizes = group_sizes(len(images), self.ghost_batch_size)
        if learns:
            tracked.add_(len(sizes))
        if not learns or len(sizes) == 1:
            return F.batch_norm(
                images, mean, variance, self.weight, self.bias, learns, momentum, self.eps
            )
        return _GroupedBatchNorm.apply(
            images, self.weight, self.bias, mean, variance, sizes, momentum, self.eps
        )


class GhostBatchNorm1d(GhostBatchNorm, nn.BatchNorm1d):
    """For features (n, channels) and (n, channels, length)."""


class GhostBatchNorm2d(GhostBatchNorm, nn.BatchNorm2d):
    """For images (n, channels, height, width)."""


class GhostBatchNormAct2d(GhostBatchNorm, nn.BatchNorm2d):
    """As timm's `BatchNormAct2d`: dropout and activation come with the norm."""

    def forward(self, images: Tensor) -> Tensor:
        """Return the activated images, (n, channels, height, width)."""
        features = super().forward(images)
        for name in ("drop", "act"):
            features = self.get_submodule(name)(features)
        return features


def use_ghost_batch_norm(model: nn.Module, ghost_batch_size: int) -> None:
    """Replace every batch norm of the model, in place, keeping its parameters and buffers.

    Raises:
        ValueError: One of them cannot be replaced; names the layer and what it is.
    """
    for path, child in model.named_modules():
        if isinstance(child, _BatchNorm) and (problem := _problem(child)):
            raise ValueError(f"{path or 'the model'} is a {problem}")

    def ghost(child: nn.Module) -> nn.Module | None:
        kind = _ghost_kind(child)
        if kind is None or not isinstance(child, _BatchNorm):
            return None
        assert child.momentum is not None
        new = kind(
            child.num_features,
            ghost_batch_size=ghost_batch_size,
            eps=child.eps,
            momentum=child.momentum,
        )
        for name, part in child.named_children():  # of timm's
            new.add_module(name, part)
        new.load_state_dict(child.state_dict())
        for name, parameter in child.named_parameters(recurse=False):
            new.get_parameter(name).requires_grad_(parameter.requires_grad)
        return new.train(child.training)

    replace_modules(model, ghost)


def use_plain_batch_norm(model: nn.Module) -> None:
    """Replace every ghost batch norm of a model that is not trained any more, in place."""

    def plain(child: nn.Module) -> nn.Module | None:
        if not isinstance(child, GhostBatchNorm):
            return None
        kind = nn.BatchNorm1d if isinstance(child, nn.BatchNorm1d) else nn.BatchNorm2d
        new = kind(child.num_features, eps=child.eps, momentum=child.momentum)
        own = {name: value for name, value in child.state_dict().items() if "." not in name}
        new.load_state_dict(own)
        new.train(child.training)
        parts = list(child.children())  # the dropout and the activation of timm's
        return nn.Sequential(new, *parts) if parts else new

    replace_modules(model, plain)


def ghost_size(model: nn.Module) -> int:
    """Return how many images make one ghost group of the model: 1 where it has no BatchNorm."""
    norms = (module for module in model.modules() if isinstance(module, GhostBatchNorm))
    return next((norm.ghost_batch_size for norm in norms), 1)


def _ghost_kind(norm: nn.Module) -> type[GhostBatchNorm] | None:
    kind: type[nn.Module] = type(norm)
    if kind.__module__.startswith("timm.") and kind.__name__ == "BatchNormAct2d":
        return GhostBatchNormAct2d
    kinds: dict[type[nn.Module], type[GhostBatchNorm]] = {
        nn.BatchNorm1d: GhostBatchNorm1d,
        nn.BatchNorm2d: GhostBatchNorm2d,
    }
    return kinds.get(kind)


def _problem(norm: _BatchNorm) -> str:
    """Return what keeps a batch norm from working on groups; nothing where it can."""
    kind = type(norm).__name__
    if isinstance(norm, GhostBatchNorm):
        return ""
    if _ghost_kind(norm) is None:
        return f"{kind}, not nn.BatchNorm1d or nn.BatchNorm2d itself"
    if not norm.affine:
        return f"{kind} with affine=False"
    if not norm.track_running_stats:
        return f"{kind} with track_running_stats=False"
    return f"{kind} with momentum=None" if norm.momentum is None else ""


class _GroupedBatchNorm(torch.autograd.Function):
    """Torch's own kernels, group by group, written straight into one output.

    Splitting and concatenating instead copies the activations twice more: 1.6 times the cost of
    plain BatchNorm against 1.2 times (one core, 128 x 16 x 32 x 32, torch 2.14).
    """

    @staticmethod
    def forward(
        ctx: Any,
        images: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        variance: Tensor,
        sizes: list[int],
        momentum: float,
        eps: float,
    ) -> Tensor:
        output = torch.empty_like(images)
        statistics = weight.new_empty(2, len(sizes), len(weight))
        parts = zip(images.split(sizes), output.split(sizes), *statistics, strict=True)
        for part, out, part_mean, part_scale in parts:
            torch.native_batch_norm(
                part, weight, bias, mean, variance, True, momentum, eps,
                out=(out, part_mean, part_scale),
            )  # fmt: skip
        ctx.save_for_backward(images, weight, statistics)
        ctx.sizes, ctx.eps = sizes, eps
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, weight, statistics = ctx.saved_tensors
        result = torch.empty_like(images)
        affine = torch.zeros(2, *weight.shape, dtype=weight.dtype, device=weight.device)
        wholes = (gradient, images, result)
        parts = zip(*(whole.split(ctx.sizes) for whole in wholes), *statistics, strict=True)
        for part_gradient, part, out, part_mean, part_scale in parts:
            by_image, by_weight, by_bias = torch.ops.aten.native_batch_norm_backward(
                part_gradient, part, weight, None, None, part_mean, part_scale, True, ctx.eps,
                ALL_GRADIENTS,
            )  # fmt: skip
            out.copy_(by_image)
            affine[0] += by_weight
            affine[1] += by_bias
        return result, affine[0], affine[1], None, None, None, None, None
