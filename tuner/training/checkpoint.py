"""Checkpoint files that are whole or not there, and say so when they are damaged."""

import hashlib
import io
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from tuner.errors import CheckpointError
from tuner.files import is_disk_error, not_written, remove_left_overs, replacing, write_bytes
from tuner.planning.disk import NEWEST_KEPT
from tuner.training.memory import is_out_of_memory

DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """The checkpoints of one run, each named by its `samples_seen`: ``000012000.pt``.

    A file is what `torch.save` writes with the SHA-256 of it behind; `torch.load` reads it as it
    is, with `weights_only`. `on_damaged` is told, in one line, of a file that is passed over.
    """

    folder: Path
    on_damaged: Callable[[str], None]

    def save(
        self, payload: Mapping[str, Any], samples_seen: int, *, keep: Collection[int] = ()
    ) -> None:
        """Write a checkpoint durably, then drop all but the newest two and those in `keep`.

        Files of more `samples_seen` go too: the run went back behind them.

        Raises:
            CheckpointError: It cannot be written, and the files before it are as they were; or
                one of these cannot be removed.
        """
        path = self.path(samples_seen)
        buffer = io.BytesIO()
        torch.save(dict(payload), buffer)
        body = buffer.getbuffer()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary, temporary.open("wb") as file:
                file.write(body)
                file.write(hashlib.sha256(body).digest())
            self._prune(samples_seen, keep)
        except OSError as error:
            # Without the trial in it: one reason for all trials ends a search at once.
            problem = not_written(self.folder.parent, "no checkpoint can be written", error)
            raise CheckpointError(problem) from error

    def load(self, samples_seen: int) -> dict[str, Any]:
        """Return the payload saved at `samples_seen`, its tensors on the CPU.

        No code in a file is run.

        Raises:
            CheckpointError: The file is missing, damaged, or not one of ours.
        """
        path = self.path(samples_seen)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
        body, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
        if hashlib.sha256(body).digest() != digest:
            raise CheckpointError(f"{path}: is damaged (its SHA-256 does not fit)")
        try:
            payload = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            # Any kind may come of bytes that torch did not write: seven did in a trial of 1,500.
            raise CheckpointError(
                f"{path}: is no checkpoint (torch refuses it: {type(error).__name__})"
            ) from error
        if not isinstance(payload, dict):
            raise CheckpointError(f"{path}: is no checkpoint ({type(payload).__name__})")
        return payload

    def newest(self, at_most: int | None = None) -> tuple[int, dict[str, Any]] | None:
        """Return the newest undamaged checkpoint, of at most `at_most` images, or None."""
        found = None
        passed_over = []
        for samples_seen in reversed(self.saved()):
            if at_most is not None and samples_seen > at_most:
                continue
            try:
                found = samples_seen, self.load(samples_seen)
                break
            except CheckpointError as error:
                passed_over.append(str(error))
        instead = f"{self.path(found[0]).name} is used instead" if found else "training begins anew"
        for problem in passed_over:
            self.on_damaged(f"{problem}; {instead}")
        return found

    def saved(self) -> list[int]:
        """Return the `samples_seen` of every checkpoint there is, ascending."""
        names = (path.stem for path in self.folder.glob("*.pt"))
        return sorted(int(name) for name in names if name.isdecimal())

    def sizes(self) -> dict[int, int]:
        """Return the bytes of every checkpoint there is, by `samples_seen`."""
        found = {}
        for samples_seen in self.saved():
            with suppress(FileNotFoundError):  # a trial in a slot prunes its own meanwhile
                found[samples_seen] = self.path(samples_seen).stat().st_size
        return found

    def remove(self, samples_seen: int) -> None:
        """Remove a checkpoint, where it is there.

        Raises:
            CheckpointError: It cannot be removed: it is another user's, say.
            OSError: A disk fails.
        """
        path = self.path(samples_seen)
        with self._removing(path.name):
            path.unlink(missing_ok=True)

    def remove_left_overs(self) -> None:
        """Remove what a process left that was killed while it wrote.

        Raises:
            CheckpointError: As `remove` does; OSError, too.
        """
        with self._removing("a file that was left half written"):
            remove_left_overs(self.folder)

    def path(self, samples_seen: int) -> Path:
        """Return where the checkpoint of `samples_seen` lies."""
        return self.folder / f"{samples_seen:09d}.pt"

    @contextmanager
    def _removing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if is_disk_error(error):
                raise
            problem = not_written(self.folder, f"{what} cannot be removed", error)
            raise CheckpointError(problem) from error

    def _prune(self, newest: int, keep: Collection[int]) -> None:
        past = [samples_seen for samples_seen in self.saved() if samples_seen <= newest]
        kept = {*past[-NEWEST_KEPT:], *keep}
        for samples_seen in set(self.saved()) - kept:
            self.remove(samples_seen)
        self.remove_left_overs()


def weights_sha256(model: nn.Module) -> str:
    """Return the SHA-256 over names, shapes and bits of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write the tensors of a model's state as safetensors, as `write_bytes` does."""
    tensors = {name: tensor.contiguous() for name, tensor in weights.items()}
    write_bytes(path, safetensors.torch.save(tensors))


def load_weights(path: Path, model: nn.Module, name: str, num_classes: int) -> dict[str, Tensor]:
    """Put the weights of a safetensors file into the model, all of them, and return them.

    Args:
        path: The file.
        model: Of the same structure.
        name: What the model is called, for messages.
        num_classes: How many classes it has, for messages.

    Raises:
        CheckpointError: The file cannot be read, is damaged, or holds another model's weights.
    """
    try:
        weights = safetensors.torch.load(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
    except Exception as error:  # any kind may come of bytes that safetensors did not write
        if is_out_of_memory(error):
            raise
        raise CheckpointError(
            f"{path}: is damaged (no whole safetensors file); take it from a whole copy"
        ) from error
    if problem := _misfit(weights, model.state_dict()):
        raise CheckpointError(
            f"{path}: does not fit {name} with {num_classes} classes ({problem}); "
            "the files of the folder belong to different models"
        )
    model.load_state_dict(weights)
    return weights


def _misfit(weights: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """Return the first tensor that is missing, left over or wrong; nothing if none."""
    for name, tensor in wanted.items():
        if name not in weights:
            return f"no {name}"
        if weights[name].shape != tensor.shape:
            shapes = [list(each.shape) for each in (weights[name], tensor)]
            return f"{name} is {shapes[0]}, not {shapes[1]}"
        if not weights[name].isfinite().all():
            return f"{name} holds values that are no numbers"
    return next((f"unknown {name}" for name in weights if name not in wanted), "")
