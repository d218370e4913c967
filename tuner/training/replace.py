"""Layers of a model exchanged for others, in place."""

from collections.abc import Callable

from torch import nn


def replace_modules(model: nn.Module, build: Callable[[nn.Module], nn.Module | None]) -> None:
    """Put what `build` returns in the place of every module for which it returns one.

    It is asked once for each module, in order; one that stands in several places stays shared.
    """
    answers: dict[nn.Module, nn.Module | None] = {}
    for path, child in list(model.named_modules(remove_duplicate=False)):
        if not path:
            continue
        if child not in answers:
            answers[child] = build(child)
        new = answers[child]
        if new is not None:
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, new)
