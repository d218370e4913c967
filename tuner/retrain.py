"""`python -m tuner.retrain`: trains one configuration, in full, and says whether it repeats.

python -m tuner.retrain config=results/imagenet_small/best.yaml
python -m tuner.retrain space=imagenet_small train.epochs=30
"""

import json
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from tuner import cli
from tuner.errors import RunError, SettingsError, StudyError
from tuner.files import hold_folder, write_json, write_json_rows, write_text
from tuner.recorded import read_best
from tuner.settings.config import Config, flatten
from tuner.settings.identity import (
    BINDING_NAME,
    binding_settings,
    binding_weights,
    describe_changes,
    first_weights_sha256,
    is_gone,
)
from tuner.settings.load import load_settings, load_space

if TYPE_CHECKING:
    from tuner.assemble import TrainingRun
    from tuner.stages.networks import FittedWeights

OUTPUT_ROOT = Path("results")
STEP_KEYS = ("model.", "data.image_size", "train.batch_size", "train.accumulate_steps")


class RetrainKeys(cli.Keys):
    """Trains one configuration in full; the same command again goes on where it was killed."""

    config: str | None = Field(default=None, description="a best.yaml, or")
    space: str | None = Field(default=None, description="a search space, for its fixed settings")
    output: str | None = Field(
        default=None,
        description="model folder to write; null is retrain/ beside config, or <space>-retrain",
    )


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be trained and where to.

    Attributes:
        recorded: The content of `best.yaml`; None where a space was given.
        micro_batch_size: Images of a slice as recorded; None where these settings ask for others.
        cache_root: Folder of generated and decoded images.
        weights_sha256: Of the file of first weights; None without one.
    """

    config: Config
    output: Path
    cache_root: Path
    threads: int
    recorded: Mapping[str, Any] | None
    micro_batch_size: int | None = None
    weights_sha256: str | None = None

    @property
    def binding(self) -> dict[str, Any]:
        """What the run must keep, but for its images."""
        return binding_settings(self.config) | binding_weights([self.weights_sha256])


def main(keys: RetrainKeys, overrides: list[str]) -> None:
    """Trains, writes the model folder, and compares with what `best.yaml` had recorded."""
    task = read_task(keys, overrides)
    with hold_folder(task.output):
        from tuner.reporting.classes import uneven_text
        from tuner.reporting.terminal import say

        run = open_training(task)
        if lost := run.what_is_lost(samples_reported(task)):
            say(lost)
        train(run, task)
        evaluation = hand_over(run, task)
        if evaluation and (uneven := uneven_text(evaluation)):
            say(uneven)
        say(f"model folder: {task.output}")
        if task.recorded:
            from tuner.comparison import compare

            say(compare(run, task.recorded, task.config, task.binding, threads=task.threads))


def read_task(keys: RetrainKeys, overrides: list[str]) -> Task:
    """Returns the task, all settings checked.

    Raises:
        SettingsError: One line for each mistake.
        ResourceError: The machine cannot give what is asked.
    """
    if (keys.config is None) == (keys.space is None):
        raise SettingsError("config, space: give one of the two, and not both")
    if keys.space is not None:
        space = load_space(keys.space, overrides)
        output = Path(keys.output or OUTPUT_ROOT / f"{space.name}-retrain").absolute()
        cache_root = Path(space.config.data.cache_root or output.parent / ".cache")
        threads, weights = threads_here(space.config), first_weights_sha256(space.config, output)
        return Task(space.config, output, cache_root, threads, None, weights_sha256=weights)
    path = Path(keys.config or "").absolute()
    recorded = read_best(path)
    config = load_settings(recorded["settings"], path, overrides)
    threads = recorded["environment"]["threads"]
    if config.resources != load_settings(recorded["settings"], path, []).resources:
        threads = threads_here(config)
    output = Path(keys.output or path.parent / "retrain").absolute()
    cache_root = Path(config.data.cache_root or find_cache(path) or output.parent / ".cache")
    return Task(
        config,
        output,
        cache_root,
        threads,
        recorded,
        recorded_slice(recorded, path, config),
        first_weights_sha256(config, output),
    )


def recorded_slice(recorded: Mapping[str, Any], path: Path, config: Config) -> int | None:
    """Returns the images of a slice that the result was reached with, while steps are the same.

    Memory had decided on them, and another card would decide otherwise.
    """
    before, now = flatten(load_settings(recorded["settings"], path, [])), flatten(config)
    is_same = all(before[key] == now[key] for key in now if key.startswith(STEP_KEYS))
    return recorded["result"].get("micro_batch_size") if is_same else None


def find_cache(best_yaml: Path) -> Path | None:
    """Returns the cache that a search left above its `best.yaml`: images generated or decoded."""
    caches = (folder / ".cache" for folder in best_yaml.parents)
    ours = ("generated-*", "decoded/*.pixels")  # ~/.cache is everybody's
    return next((cache for cache in caches if any(any(cache.glob(each)) for each in ours)), None)


def threads_here(config: Config) -> int:
    """Returns the torch threads that a trial of these settings has on this machine.

    A winner that is only repeated is not asked: it keeps its threads, whatever they cost here.

    Raises:
        ResourceError: The machine cannot give what is asked.
    """
    from tuner.planning.machine import look
    from tuner.planning.resources import plan_resources

    plan = plan_resources(
        look(),
        cpus_per_trial=config.resources.cpus_per_trial,
        gpus_per_trial=config.resources.gpus_per_trial,
        max_concurrent=1,
        num_trials=1,
    )
    return plan.threads


def open_training(task: Task) -> "TrainingRun":
    """Returns the run at its newest checkpoint, the images checked.

    Raises:
        SettingsError: There is no such model, or it cannot take such images.
        DataError: The images cannot be used.
        StudyError: The output holds a run of other settings or images.
    """
    import torch

    from tuner.assemble import mining_notes, open_run, short_step_notes
    from tuner.data.prepare import write_dataset_record
    from tuner.images import prepare_images
    from tuner.planning.decoded import device_cache_bytes
    from tuner.planning.machine import look
    from tuner.reading import build_loader, decode_images
    from tuner.reporting.terminal import counting, say
    from tuner.stages.networks import write_fitted

    torch.set_num_threads(task.threads)
    open_model(task)
    machine = look()
    num_processes = max(1, int(machine.cpus))
    with counting("preparing images") as progress:
        data = prepare_images(
            task.config,
            task.cache_root,
            report_path=task.output / "dataset.json",
            num_processes=num_processes,
            progress=progress,
        )
    ratio, is_told = task.config.mining.ratio, len(data.first_hard) > 0
    for note in (
        *data.notes,
        *short_step_notes(task.config.train.batch_size, len(data.train)),
        *mining_notes(task.config, ratio, is_told=is_told),
    ):
        say(note)
    fitted = look_at_model(task, len(data.train.classes))
    claim_output(task, data.fingerprint)
    write_fitted(task.output / "weights.json", fitted)
    write_dataset_record(task.output / "dataset.json", data)
    with counting("decoding images") as progress:
        decoding = decode_images(
            task.config,
            data,
            task.cache_root,
            memory_bytes=machine.memory_bytes,
            num_processes=num_processes,
            progress=progress,
        )
    say(decoding.told(task.config.data.cache, has_gpu=bool(machine.gpus)))
    card_bytes = min((gpu.memory_bytes for gpu in machine.gpus), default=0)
    device_bytes = device_cache_bytes(1.0, card_bytes)
    decoded_root = None if decoding.refusal else task.cache_root
    loader = build_loader(task.config, data, decoded_root, device_bytes=device_bytes)
    run = open_run(task.config, data, loader, task.output / "checkpoints", on_damaged=say)
    if task.micro_batch_size and not run.state.samples_seen:
        run.state.micro_batch_size = task.micro_batch_size
    return run


def open_model(task: Task) -> None:
    """Lets Python find the model's code where it was, and builds the model once, to be told early.

    Raises:
        SettingsError: There is no such model, or it cannot take such images.
    """
    from tuner.assemble import build_net
    from tuner.handover import find_recorded_code

    recorded = task.recorded or {}
    find_recorded_code(recorded, task.config.model.name)
    num_classes = len(recorded.get("classes", ())) or 2  # the images have not been looked at
    build_net(task.config, num_classes)


def look_at_model(task: Task, num_classes: int) -> "tuple[FittedWeights, ...]":
    """Looks at what the model gives, and says and returns how much of a weights file fits.

    Raises:
        SettingsError: The model gives no score for each class; or the file is damaged, or too
            little of it fits.
    """
    from tuner.assemble import check_model
    from tuner.reporting.terminal import say
    from tuner.stages.networks import FittedWeights, say_weights

    name, path = task.config.model.name, task.config.model.weights
    there = {"model.weights": None if is_gone(path) else path}  # a checkpoint has all weights
    fit = check_model(task.config.with_overrides(there), num_classes)
    if task.recorded and task.recorded.get("weights_sha256") != task.weights_sha256:
        say("model.weights: not those of the recorded result, with which it is not compared")
    fitted = (FittedWeights(name, path, fit),) if path and fit else ()
    say_weights(fitted)
    return fitted


def claim_output(task: Task, fingerprint: str) -> None:
    """Writes down what is trained in the output folder, or checks that it is the same."""
    path = task.output / BINDING_NAME
    binding = task.binding | {"data_fingerprint": fingerprint}
    if path.exists():
        changes = describe_changes(json.loads(path.read_text("utf-8")), binding)
        if changes:
            raise StudyError(
                f"{task.output}: holds another run ({', '.join(changes)}); "
                "use another output=… or remove that folder"
            )
    write_json(path, binding)


def train(run: "TrainingRun", task: Task) -> None:
    """Trains to the end, `metrics.jsonl` and a line or a bar on the way.

    Raises:
        RunError: Training failed; says why.
    """
    from tuner.reporting.terminal import training_bar

    with (
        closing(run.loader),
        training_bar(run.total_samples, lambda: run.state.samples_seen) as tell,
        closing(run.results(run.total_samples)) as results,
    ):
        for result in results:
            if result.reason:
                raise RunError(
                    f"training: {result.reason} at epoch {result.epoch:.2f} ({result.message})"
                )
            write_metrics(run, task)
            tell(result.to_plain())


def samples_reported(task: Task) -> int:
    """Returns the images of the last report in `metrics.jsonl`; 0 where there is none."""
    path = task.output / "metrics.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return max((json.loads(line)["samples_seen"] for line in lines), default=0)


def write_metrics(run: "TrainingRun", task: Task) -> None:
    lines = (json.dumps(report, allow_nan=False) for report in run.state.history)
    write_text(task.output / "metrics.jsonl", "".join(f"{line}\n" for line in lines))


def hand_over(run: "TrainingRun", task: Task) -> Mapping[str, Any] | None:
    """Writes the model folder and `summary.json` from the best report's checkpoint.

    Returns:
        What that report found of each class; None where an older version trained to it.
    """
    from tuner.handover import (
        describe_evaluation,
        describe_hard_images,
        describe_winner,
        write_model_folder,
    )
    from tuner.training.state import trained_weights

    write_metrics(run, task)
    best = run.best
    if best is None:
        raise RunError("training ended without a finite score")
    winner = describe_winner(
        task.config,
        best,
        classes=run.data.train.classes,
        data_fingerprint=run.data.fingerprint,
        threads=task.threads,
        device=run.state.device.type,
        weights_sha256=task.weights_sha256,
    )
    checkpoint = run.checkpoints.load(best["samples_seen"])
    mining_labels = describe_hard_images(checkpoint, run.data.train, task.config)
    write_model_folder(task.output, trained_weights(checkpoint), winner, task.config, mining_labels)
    evaluation = describe_evaluation(checkpoint, run.data.validation)
    history = run.state.history
    cost = {
        "images": run.state.samples_seen,
        "seconds": sum(report["seconds"] for report in history),
        "final": history[-1],
    }
    write_json_rows(task.output / "summary.json", winner | cost | {"evaluation": evaluation})
    return evaluation


if __name__ == "__main__":
    sys.exit(cli.run("retrain", RetrainKeys, main))
