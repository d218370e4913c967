"""How many trials run side by side, and what each of them gets."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf

from tuner.errors import ResourceError
from tuner.planning.machine import Gpu, Machine

# What a process takes of a card beside torch's allocator: context, kernels, cuDNN. An estimate.
GPU_CONTEXT_BYTES = 600 * 2**20
RAY_UNITS = 10_000  # Ray counts in ten-thousandths of a CPU and of a card


@dataclass(frozen=True, slots=True)
class Plan:
    """How the machine is shared among the trials.

    Attributes:
        slots: Trials side by side, at least 1.
        cpus_per_trial: CPUs of each trial; may be a fraction.
        gpus_per_trial: Share of one card, 0 to 1; a trial never straddles two cards.
        num_gpus: Cards that the trials share; 0 where they use none.
        threads: Torch threads of each trial.
    """

    slots: int
    cpus_per_trial: float
    gpus_per_trial: float
    num_gpus: int
    threads: int


def plan_resources(
    machine: Machine,
    *,
    cpus_per_trial: float | str,
    gpus_per_trial: float | str,
    max_concurrent: int | str,
    num_trials: int,
) -> Plan:
    """Returns the plan that keeps the machine busy and never exceeds it.

    Args:
        machine: What there is.
        cpus_per_trial: CPUs of each trial, above 0, or "auto": all there are, shared out among the
            trials side by side; without a GPU a core for each of them at least.
        gpus_per_trial: Share of one card, 0 to 1, or "auto": what `max_concurrent` leaves to each,
            a whole card where that is "auto" too; 0 without a card.
        max_concurrent: Trials side by side, or "auto": as many as fit.
        num_trials: Trials that there are in all.

    Raises:
        ResourceError: The machine cannot give this; names what is wanted and what there is.
    """
    num_gpus = len(machine.gpus)
    gpus = gpus_per_trial
    if isinstance(gpus, str):
        gpus = _share_of_a_card(max_concurrent, num_gpus)
    by_gpu = _times(1, gpus) * num_gpus if gpus else inf
    least_cpus = _least_cpus(cpus_per_trial, machine.cpus, by_gpu)
    by_cpu = _times(machine.cpus, least_cpus)
    fit = int(min(by_cpu, by_gpu))
    slots = min(fit, num_trials) if isinstance(max_concurrent, str) else max_concurrent
    cpus = _shared_out(machine.cpus, slots) if isinstance(cpus_per_trial, str) else cpus_per_trial
    problems = []
    if by_cpu < 1:
        problems.append(
            f"resources.cpus_per_trial: {least_cpus:g} wanted, this process may use "
            f"{machine.cpus:g}; use at most that"
        )
    if by_gpu < 1:
        problems.append(
            f"resources.gpus_per_trial: {gpus:g} wanted, torch finds "
            f"{num_gpus or 'no'} GPU here; use {'at most 1' if num_gpus else '0'}"
        )
    if not problems and slots > fit:
        problems.append(
            f"search.max_concurrent: {slots} trials of {least_cpus:g} CPU and {gpus:g} GPU "
            f"wanted, {machine.cpus:g} CPU and {num_gpus} GPU hold {fit}; use at most {fit}"
        )
    if gpus and not problems:
        problems += _taken_cards(machine.gpus, _times(1, gpus))
    if problems:
        raise ResourceError(*problems)
    return Plan(
        slots=slots,
        cpus_per_trial=cpus,
        gpus_per_trial=gpus,
        num_gpus=num_gpus if gpus else 0,
        threads=max(1, floor(cpus)),
    )


def _taken_cards(gpus: Sequence[Gpu], trials_per_gpu: int) -> list[str]:
    """A line for each card that has no room for the bare processes of its trials."""
    needed = trials_per_gpu * GPU_CONTEXT_BYTES
    return [
        f"GPU {number} ({gpu.name}): {gpu.free_bytes / 1e9:.1f} of {gpu.memory_bytes / 1e9:.1f} GB "
        f"are free, {trials_per_gpu} trials need {needed / 1e9:.1f} GB before they train; end what "
        "uses it, or leave it out by CUDA_VISIBLE_DEVICES"
        for number, gpu in enumerate(gpus)
        if gpu.free_bytes < needed
    ]


def _times(total: float, each: float) -> int:
    """How often `each` fits into `total` as Ray counts them."""
    return floor(round(total * RAY_UNITS, 6)) // max(1, round(each * RAY_UNITS))


def _share_of_a_card(max_concurrent: int | str, num_gpus: int) -> float:
    if not num_gpus:
        return 0.0
    return 1.0 if isinstance(max_concurrent, str) else 1 / ceil(max_concurrent / num_gpus)


def _least_cpus(asked: float | str, cpus: float, by_gpu: float) -> float:
    """What a trial is not begun without: as asked, or a core; beside GPUs it makes do with less."""
    if not isinstance(asked, str):
        return asked
    return min(1.0, cpus, _shared_out(cpus, int(by_gpu)) if 0 < by_gpu < inf else inf)


def _shared_out(cpus: float, slots: int) -> float:
    """Whole CPUs where there is one for each slot: a trial's threads are whole."""
    share = cpus / max(1, slots)
    return float(floor(share)) if share >= 1 else floor(share * RAY_UNITS) / RAY_UNITS
