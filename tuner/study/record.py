"""The durable truth of a search: every trial with its settings, its reports and its end.

It lives in one append-only Optuna journal. Each method that changes it writes one event (one
append, one fsync) before it returns, so that the program acts only on what is kept. Decisions are
not recorded: they follow from the record.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.errors import StudyError
from tuner.files import is_disk_error
from tuner.settings.checks import LARGEST_SEED
from tuner.settings.space import ChoiceSpec, FloatSpec, IntSpec, ParameterSpec, spec_to_plain
from tuner.study.identity import begin_study, check_name, find_study
from tuner.study.journal import EventJournal, JournalView

State = Literal["running", "complete", "stopped", "failed", "infeasible"]
EndState = Literal["complete", "stopped", "failed", "infeasible"]
Direction = Literal["maximize", "minimize"]
Report = Mapping[str, Any]

JOURNAL_NAME = "study.journal"
CONFIRM = ".confirm"  # behind the search's name: the study of its confirm runs
SEED_KEY = "train.seed"
ANY_SEED = IntSpec(low=0, high=LARGEST_SEED)
# Constraints of an infeasible trial, as Optuna stores them: above zero is violated.
VIOLATED = create_trial(state=TrialState.PRUNED, constraints={"memory": 1.0}).system_attrs


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One trial as the journal has it.

    Args:
        reports: Plain dicts with at least ``samples_seen``, by which they are ordered.
        state: ``running`` until the trial's end is recorded, whether or not a job works on it.
        reason: Why it failed: ``diverged``, ``out_of_memory``, ``error``, ``killed``, ``stalled``.
        failures: Attempts that failed and were tried again.
    """

    number: int
    settings: Mapping[str, Any]
    reports: tuple[Report, ...] = ()
    state: State = "running"
    reason: str | None = None
    message: str | None = None
    failures: int = 0

    @property
    def samples_seen(self) -> int:
        """Images trained on up to the last report; 0 without one."""
        return int(self.reports[-1]["samples_seen"]) if self.reports else 0

    @property
    def seconds(self) -> float:
        """Seconds of work that its reports account for."""
        return float(sum(report.get("seconds", 0) for report in self.reports))


class Record:
    """The trials of one study, in memory as on disk. Made by `open`, by one process at a time.

    `read_record` makes one that only tells.

    Attributes:
        metric: The name of the score in a report.
        direction: ``maximize`` or ``minimize``.
    """

    metric: str
    direction: Direction

    def __init__(
        self,
        storage: JournalStorage,
        journal: EventJournal | JournalView,
        run_folder: Path,
        name: str,
        identity: Mapping[str, Any],
        parameters: Mapping[str, ParameterSpec],
        points: Mapping[str, Any] | None = None,
        data_changes: str = "",
    ) -> None:
        study_id = find_study(storage, name, identity, run_folder, data_changes)
        if study_id is None:
            study_id = begin_study(storage, journal, name, identity, points)
        self._storage = storage
        self._journal = journal
        self._run_folder = run_folder
        self._name = name
        self._study_id = study_id
        self._identity = identity
        self._parameters = parameters
        self.metric = identity["metric"]
        self.direction = identity["direction"]
        self._distributions = {key: distribution(spec) for key, spec in parameters.items()}
        self._points = storage.get_study_user_attrs(study_id).get("points", {})
        found = storage.get_all_trials(study_id, deepcopy=False)
        self._trial_ids = [trial._trial_id for trial in found]
        self._trials = [_trial_record(trial) for trial in found]

    @classmethod
    def open(
        cls,
        run_folder: Path,
        *,
        name: str,
        metric: str,
        direction: Direction,
        parameters: Mapping[str, ParameterSpec],
        data_fingerprint: str,
        settings_plain: Mapping[str, Any],
        points: Sequence[Mapping[str, Any]] = (),
        points_from: str | None = None,
        data_changes: str = "",
    ) -> Self:
        """The record in `run_folder`, begun where there is none yet.

        The caller holds the folder (`files.hold_folder`): what looks left over is repaired.

        Args:
            name: The study's name in the journal.
            settings_plain: What all trials share and must not change, by dotted key, as JSON.
            points: Settings to try first; they are kept where it is begun, and pass by where it
                was before.
            points_from: The list or search that they come from, if any.
            data_changes: Tells how the images differ from those it was made for, if they do.

        Raises:
            StudyError: The record was made for another metric, space, data or settings, it is
                damaged, or this user may not read and write it.
            OSError: A disk fails.
        """
        identity = {
            "metric": metric,
            "direction": direction,
            "data_fingerprint": data_fingerprint,
            "parameters": {key: spec_to_plain(spec) for key, spec in parameters.items()},
            "settings": dict(settings_plain),
        }
        journal, storage = _open_journal(run_folder / JOURNAL_NAME)
        check_name(storage, name, run_folder)
        begins_with = {"from": points_from, "settings": [dict(point) for point in points]}
        return cls(
            storage,
            journal,
            run_folder,
            name,
            identity,
            parameters,
            points=begins_with if points else None,
            data_changes=data_changes,
        )

    def open_confirm(self) -> Self:
        """The record of the confirm runs, in the same journal: a run also sets `train.seed`."""
        parameters = {**self._parameters, SEED_KEY: ANY_SEED}
        return type(self)(
            self._storage,
            self._journal,
            self._run_folder,
            self._name + CONFIRM,
            self._identity,
            parameters,
        )

    @property
    def parameters(self) -> Sequence[str]:
        """The keys that a trial may set."""
        return list(self._parameters)

    @property
    def settings(self) -> Mapping[str, Any]:
        """What all trials share, by dotted key, as the search was begun with it."""
        settings: Mapping[str, Any] = self._identity["settings"]
        return settings

    @property
    def points(self) -> Sequence[dict[str, Any]]:
        """The settings to try first, as the search was begun with them."""
        return self._points.get("settings", ())

    @property
    def points_from(self) -> str | None:
        """The list or search that the points come from, if any."""
        return self._points.get("from")

    @property
    def trials(self) -> Sequence[TrialRecord]:
        """All trials, by number."""
        return self._trials

    def best_report(self, number: int) -> Report | None:
        """The trial's report with the best finite score, the earliest of equals; None without."""
        scored = [report for report in self._trials[number].reports if self.is_scored(report)]
        better = max if self.direction == "maximize" else min
        return better(scored, key=lambda report: report[self.metric], default=None)

    def best_score(self, number: int) -> float | None:
        """The score of the trial's best report; None without one, and for a trial that failed."""
        report = self.best_report(number)
        has_failed = self._trials[number].state in ("failed", "infeasible")
        return None if report is None or has_failed else float(report[self.metric])

    def ranked(self) -> list[TrialRecord]:
        """All trials, the best score first, of equals the earliest; those without one last."""

        def rank(trial: TrialRecord) -> tuple[bool, float, int]:
            score = self.best_score(trial.number)
            if score is None:
                return True, 0.0, trial.number
            return False, -score if self.direction == "maximize" else score, trial.number

        return sorted(self._trials, key=rank)

    def is_scored(self, report: Report) -> bool:
        """Whether the report has a finite score."""
        score = report.get(self.metric)
        return score is not None and math.isfinite(score)

    def add_trial(self, settings: Mapping[str, Any]) -> TrialRecord:
        """Records a new trial with all its settings, by parameter; its number is the next one."""
        trial = create_trial(
            state=TrialState.RUNNING,
            params=dict(settings),
            distributions={key: self._distributions[key] for key in settings},
        )
        self._trial_ids.append(self._storage.create_new_trial(self._study_id, trial))
        self._trials.append(_trial_record(self._storage.get_trial(self._trial_ids[-1])))
        return self._trials[-1]

    def add_report(self, number: int, report: Report) -> TrialRecord:
        """Records a report. Its ``nominal_samples``, where it has one, is the step Optuna sees."""
        trial_id = self._running_trial_id(number)
        step = report.get("nominal_samples", report["samples_seen"])
        finite = {key: _finite_or_none(value) for key, value in report.items()}
        with self._journal.event():
            if self.is_scored(report):
                self._storage.set_trial_intermediate_value(trial_id, step, report[self.metric])
            key = f"report:{report['samples_seen']:09d}"
            self._storage.set_trial_user_attr(trial_id, key, finite)
        return self._refresh(number)

    def add_failure(self, number: int, reason: str, message: str) -> TrialRecord:
        """Records an attempt that failed and will be tried again."""
        trial_id = self._running_trial_id(number)
        key = f"failure:{self._trials[number].failures + 1}"
        self._storage.set_trial_user_attr(trial_id, key, {"reason": reason, "message": message})
        return self._refresh(number)

    def end(
        self, number: int, state: EndState, reason: str | None = None, message: str | None = None
    ) -> TrialRecord:
        """Records how a trial ended; nothing about it is recorded after that."""
        with self._journal.event():
            self._write_end(number, state, reason, message)
        return self._refresh(number)

    def end_all(self, numbers: Iterable[int], state: EndState) -> None:
        """Records one end for many trials, in one event."""
        ended = list(numbers)
        with self._journal.event():
            for number in ended:
                self._write_end(number, state, None, None)
        for number in ended:
            self._refresh(number)

    def _write_end(
        self, number: int, state: EndState, reason: str | None, message: str | None
    ) -> None:
        trial_id = self._running_trial_id(number)
        end = {"state": state, "reason": reason, "message": message}
        self._storage.set_trial_user_attr(trial_id, "end", end)
        if state == "infeasible":
            for key, value in VIOLATED.items():
                self._storage.set_trial_system_attr(trial_id, key, value)
        best = self.best_report(number) if state == "complete" else None
        values = [best[self.metric]] if best else None
        self._storage.set_trial_state_values(trial_id, OPTUNA_STATES[state], values)

    def _running_trial_id(self, number: int) -> int:
        assert self._trials[number].state == "running", self._trials[number]
        return self._trial_ids[number]

    def _refresh(self, number: int) -> TrialRecord:
        trial = _trial_record(self._storage.get_trial(self._trial_ids[number]))
        self._trials[number] = trial
        return trial


def distribution(spec: ParameterSpec) -> BaseDistribution:
    """The Optuna distribution of a parameter; a step that misses the upper bound ends below it."""
    match spec:
        case FloatSpec(low=low, high=high, log=log):
            return FloatDistribution(low, high, log=log)
        case IntSpec(low=low, high=high, step=step, log=log):
            return IntDistribution(low, high - (high - low) % step, log=log, step=step)
        case ChoiceSpec(choices=choices):
            return CategoricalDistribution(choices)


def _open_journal(path: Path) -> tuple[EventJournal, JournalStorage]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        journal = EventJournal(path)
        return journal, JournalStorage(journal)
    except OSError as error:
        if is_disk_error(error):
            raise
        raise StudyError(
            f"{path}: cannot be opened ({error.strerror}); "
            "use name=… or resume=never for a new search"
        ) from error
    except (ValueError, TypeError, LookupError) as error:
        raise StudyError(
            f"{path}: damaged ({error!r}); use name=… or resume=never for a new search"
        ) from error


def _trial_record(trial: FrozenTrial) -> TrialRecord:
    attrs = trial.user_attrs
    reports = [value for key, value in attrs.items() if key.startswith("report:")]
    end = attrs.get("end", {})
    return TrialRecord(
        number=trial.number,
        settings=trial.params,
        reports=tuple(sorted(reports, key=lambda report: report["samples_seen"])),
        state=end.get("state", "running"),
        reason=end.get("reason"),
        message=end.get("message"),
        failures=sum(key.startswith("failure:") for key in attrs),
    )


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


OPTUNA_STATES = {
    "complete": TrialState.COMPLETE,
    "stopped": TrialState.PRUNED,
    "failed": TrialState.FAIL,
    "infeasible": TrialState.PRUNED,
}
