"""This program's search, as it runs it: the real `Jobs`, and a real `Record` in its journal file.

The journal lies in memory (tmpfs) where the machine has that, so that its fsyncs cost nothing; all
else of the record is at work.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from tests.benchmarks.search.simulate import Setup, Stint
from tuner.search_logic.jobs import STOP, Job, Jobs, Scheduler
from tuner.search_logic.rungs import rung_lengths
from tuner.search_logic.sampling import Sampler
from tuner.settings.checks import grace_epochs
from tuner.study.record import Record

SAMPLES_PER_EPOCH = 1000
# No search here comes to its last trial: its time ends it.
MANY_TRIALS = 1_000_000
SCHEDULERS: Mapping[str, Scheduler] = {
    "asha": "asha",
    "stopping": "asha_stopping",
    "none": "none",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Settings of the search, by default those of the program."""

    sampler: Sampler = "auto"
    scheduler: Scheduler = "asha"
    grace_epochs: int | None = None
    report_epochs: int = 1


def parse_choice(name: str) -> Choice:
    """The choice that a name such as ``tuner-tpe+stopping+grace1`` stands for.

    First the sampler, by the name that ``search.sampler`` has for it; then, each behind a plus,
    ``stopping`` or ``none`` for the scheduler, ``grace`` or ``report`` with a number of epochs.

    Raises:
        ValueError: It stands for nothing.
    """
    sampler, *options = name.removeprefix("tuner-").split("+")
    if sampler not in get_args(Sampler):
        raise ValueError(f"{name}: no such sampler ({sampler}); use one of {get_args(Sampler)}")
    asked: dict[str, object] = {}
    for option in options:
        if option in SCHEDULERS:
            asked["scheduler"] = SCHEDULERS[option]
        elif option.rstrip("0123456789") in ("grace", "report") and option[-1].isdigit():
            word = option.rstrip("0123456789")
            asked[f"{word}_epochs"] = int(option.removeprefix(word))
        else:
            raise ValueError(
                f"{name}: no such option ({option}); use one of {list(SCHEDULERS)}, graceN, reportN"
            )
    return Choice(sampler=sampler, **asked)  # type: ignore[arg-type]


class TunerSearch:
    """One search by `Jobs`, with its record in the folder of the setup."""

    def __init__(self, setup: Setup, choice: Choice) -> None:
        record = Record.open(
            setup.folder,
            name="benchmark",
            metric="top1",
            direction="maximize",
            parameters=setup.specs,
            data_fingerprint="",
            settings_plain={},
        )
        grace = choice.grace_epochs or round(grace_epochs("auto", setup.num_epochs))
        self.record = record
        self.jobs = Jobs(
            record,
            setup.specs,
            trials=MANY_TRIALS,
            sampler=choice.sampler,
            scheduler=choice.scheduler,
            rungs=rung_lengths(
                grace * SAMPLES_PER_EPOCH, setup.num_epochs * SAMPLES_PER_EPOCH, factor=3
            ),
            reduction_factor=3,
            max_failures=2,
            seed=setup.seed,
        )
        self._budget_s = setup.budget_s
        self._report_every = choice.report_epochs
        self._running: dict[int, Job] = {}

    def next(self, now: float) -> Stint | None:
        job = self.jobs.next_job(self._budget_s - now)
        if not isinstance(job, Job):
            return None
        self._running[job.trial_number] = job
        return Stint(
            job.trial_number,
            job.settings,
            job.start_samples // SAMPLES_PER_EPOCH,
            job.until_samples // SAMPLES_PER_EPOCH,
            self._report_every,
        )

    def tell(self, stint: Stint, epoch: int, score: float, seconds: float, now: float) -> bool:
        report = {"samples_seen": epoch * SAMPLES_PER_EPOCH, "top1": score, "seconds": seconds}
        return self.jobs.report(self._running[_number(stint)], report) is STOP

    def end(self, stint: Stint, epoch: int, now: float) -> None:
        del self._running[_number(stint)]


def _number(stint: Stint) -> int:
    assert isinstance(stint.trial, int)
    return stint.trial
