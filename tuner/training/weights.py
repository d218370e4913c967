"""First weights from a file, of which the part is taken that fits, and all of it told."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from tuner.errors import SettingsError
from tuner.training.memory import is_out_of_memory

# Below this share a model would train almost from nothing, and nobody would notice.
MIN_LOADED_SHARE = 0.5
PREFIXES = ("module.", "_orig_mod.")  # of DataParallel and of torch.compile
WRAPPERS = ("state_dict", "model")
COUNTERS = "num_batches_tracked"  # of BatchNorm, counted anew where a file has none
NAMES_TOLD = 3


@dataclass(frozen=True, slots=True)
class WeightsFit:
    """What of a weights file has gone into a model.

    Attributes:
        loaded: Names of the model's tensors that the file has given.
        missing: Of the model, not in the file; drawn from the seed.
        unexpected: In the file, not of the model.
        mismatched: In both, of another shape: (name, shape in the file, shape in the model); drawn
            from the seed, as the head is for other classes.
        loaded_share: Of the model's parameters, by their count of numbers.
    """

    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    loaded_share: float

    def to_plain(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return asdict(self)

    def told(self) -> str:
        """Return counts and the first few names, in one line."""
        lists = {
            "missing": self.missing,
            "unexpected": self.unexpected,
            "of another shape": [name for name, _, _ in self.mismatched],
        }
        counts = [f"{len(names)} {what}{_first(names)}" for what, names in lists.items()]
        tensors = "tensor" if len(self.loaded) == 1 else "tensors"
        return ", ".join([f"{len(self.loaded)} {tensors} loaded", *counts])


def load_weights(model: nn.Module, model_name: str, path: Path) -> WeightsFit:
    """Copy the weights in a file into the model, by name and shape; return what has fitted.

    The model's own are left where there are none. `module.` and `_orig_mod.` before names are
    passed over, and so are dicts around the weights (`state_dict`, `model`).

    Raises:
        SettingsError: The file cannot be read, holds NaN, or fits less than `MIN_LOADED_SHARE`.
    """
    fit = load_partial(model, read_weights(path))
    if fit.loaded_share < MIN_LOADED_SHARE:
        raise SettingsError(
            f"model.weights: {path}: fits {fit.loaded_share:.0%} of {model_name}'s parameters "
            f"({fit.told()}); use weights of this model: {MIN_LOADED_SHARE:.0%} must fit"
        )
    wrong = [name for name in fit.loaded if not _is_finite(model.state_dict()[name])]
    if wrong:
        raise SettingsError(
            f"model.weights: {path}: holds NaN or infinite values{_first(wrong)}; "
            "use weights of a training that did not diverge"
        )
    return fit


def load_partial(model: nn.Module, weights: Mapping[str, Tensor]) -> WeightsFit:
    """Copy the tensors that fit by name and shape into the model; nothing is shared with it."""
    state = model.state_dict()
    fitting = {
        name: given
        for name, given in weights.items()
        if name in state and given.shape == state[name].shape
    }
    with torch.no_grad():
        for name, given in fitting.items():
            state[name].copy_(given)
    sizes = {name: each.numel() for name, each in model.named_parameters()}
    num_loaded = sum(size for name, size in sizes.items() if name in fitting)
    return WeightsFit(
        loaded=tuple(fitting),
        missing=tuple(
            name for name in state if name not in weights and not name.endswith(COUNTERS)
        ),
        unexpected=tuple(name for name in weights if name not in state),
        mismatched=tuple(
            (name, tuple(given.shape), tuple(state[name].shape))
            for name, given in weights.items()
            if name in state and name not in fitting
        ),
        loaded_share=num_loaded / max(1, sum(sizes.values())),
    )


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors in a safetensors file or a state dict by name, on the CPU.

    No code in a file is run.

    Raises:
        SettingsError: There is no such file, it is damaged, or holds no tensors by name.
    """
    content = _read(path)
    while isinstance(content, Mapping) and (inner := _inside(content)) is not None:
        content = inner
    tensors = content if isinstance(content, Mapping) else {}
    found = {
        _bare(name): each
        for name, each in tensors.items()
        if isinstance(name, str) and isinstance(each, Tensor)
    }
    if not found:
        raise SettingsError(
            f"model.weights: {path}: holds no tensors by name ({type(content).__name__}); "
            "save a model's state_dict()"
        )
    return found


def _read(path: Path) -> Any:
    try:
        path.open("rb").close()
    except OSError as error:
        raise SettingsError(
            f"model.weights: {path}: cannot be read ({error.strerror}); "
            "give a safetensors file or a state dict, or null"
        ) from error
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        # Any kind may come of bytes that torch did not write, OSError too.
        objects = re.search(r"GLOBAL (\S+)", str(error))
        if objects:
            raise SettingsError(
                f"model.weights: {path}: holds objects that could run code ({objects[1]}), and is "
                "not read; save the state dict alone: torch.save(model.state_dict(), …)"
            ) from error
        raise SettingsError(
            f"model.weights: {path}: is damaged, or no state dict (torch refuses it: "
            f"{type(error).__name__}); give another"
        ) from error


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except SafetensorError as error:
        raise SettingsError(
            f"model.weights: {path}: is damaged, or no safetensors file; give another"
        ) from error


def _inside(content: Mapping[Any, Any]) -> Mapping[Any, Any] | None:
    """Return the dict that this one is wrapped around."""
    inside = (content.get(wrapper) for wrapper in WRAPPERS)
    return next((each for each in inside if isinstance(each, Mapping)), None)


def _bare(name: str) -> str:
    while name.startswith(PREFIXES):
        for prefix in PREFIXES:
            name = name.removeprefix(prefix)
    return name


def _is_finite(tensor: Tensor) -> bool:
    return bool(tensor.isfinite().all())


def _first(names: Sequence[str]) -> str:
    more = ", …" if len(names) > NAMES_TOLD else ""
    return f" ({', '.join(names[:NAMES_TOLD])}{more})" if names else ""
