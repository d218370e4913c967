"""How many trials run side by side, and what each of them gets."""

from dataclasses import dataclass

from tuner.planning.machine import Machine


@dataclass(frozen=True, slots=True)
class Plan:
    """How the machine is shared among the trials.

    Attributes:
        slots: Trials side by side, at least 1.
        cpus_per_trial: CPUs of each trial; may be a fraction.
        gpus_per_trial: Share of one card, 0 to 1; trials never straddle two cards.
        num_gpus: Cards that the trials share.
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
    """Returns the plan that keeps the whole machine busy and never exceeds it.

    Args:
        machine: What there is.
        cpus_per_trial: CPUs of each trial, above 0.
        gpus_per_trial: Share of one card, 0 to 1, or "auto": 1 where there is a card, else 0.
        max_concurrent: Trials side by side at most, or "auto": as many as fit.

    Raises:
        ResourceError: The machine cannot give this; names what is wanted and what there is.
    """
    raise NotImplementedError
