"""How many trials run side by side, and what each of them gets."""

from dataclasses import dataclass
from math import floor, inf

from tuner.errors import ResourceError
from tuner.planning.machine import Machine

SLACK = 1e-9  # so that three thirds of a card are three trials


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
    cpus_per_trial: float,
    gpus_per_trial: float | str,
    max_concurrent: int | str,
) -> Plan:
    """Returns the plan that keeps the machine busy and never exceeds it.

    Args:
        machine: What there is.
        cpus_per_trial: CPUs of each trial, above 0.
        gpus_per_trial: Share of one card, 0 to 1, or "auto": 1 where there is a card, else 0.
        max_concurrent: Trials side by side, or "auto": as many as fit.

    Raises:
        ResourceError: The machine cannot give this; names what is wanted and what there is.
    """
    num_gpus = len(machine.gpus)
    gpus = float(min(1, num_gpus)) if isinstance(gpus_per_trial, str) else gpus_per_trial
    by_cpu = floor(machine.cpus / cpus_per_trial + SLACK)
    by_gpu = floor(1 / gpus + SLACK) * num_gpus if gpus else inf
    problems = []
    if by_cpu < 1:
        problems.append(
            f"resources.cpus_per_trial: {cpus_per_trial:g} wanted, this process may use "
            f"{machine.cpus:g}; use at most that"
        )
    if by_gpu < 1:
        problems.append(
            f"resources.gpus_per_trial: {gpus:g} wanted, torch finds "
            f"{num_gpus or 'no'} GPU here; use {'at most 1' if num_gpus else '0'}"
        )
    fit = int(min(by_cpu, by_gpu))
    wanted = fit if isinstance(max_concurrent, str) else max_concurrent
    if not problems and wanted > fit:
        problems.append(
            f"search.max_concurrent: {wanted} trials of {cpus_per_trial:g} CPU and {gpus:g} GPU "
            f"wanted, {machine.cpus:g} CPU and {num_gpus} GPU hold {fit}; use at most {fit}"
        )
    if problems:
        raise ResourceError(*problems)
    return Plan(
        slots=wanted,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus,
        num_gpus=num_gpus if gpus else 0,
        threads=max(1, floor(cpus_per_trial)),
    )
