"""Jobs in the shape that Ray Tune asks for. Nothing is decided or kept here but who does what."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from ray import cloudpickle
from ray.exceptions import RayActorError
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from tuner.errors import StoppedError
from tuner.raytune.stalls import StallWatch
from tuner.raytune.trainable import CANNOT_WRITE, RESULT
from tuner.search_logic.jobs import END, STOP, WAIT, Decision, Job, NoJob

KILLED = {"reason": "killed", "message": "its process died: killed, crashed or out of memory"}
OUT_OF_HOST_MEMORY = {"reason": "killed", "message": "the machine ran out of memory"}


class JobSource(Protocol):
    """Hands out jobs and hears what came of them; `Jobs` is the one in use."""

    def next_job(self) -> Job | NoJob:
        """Returns a job for a free slot, WAIT or END."""

    def report(self, job: Job, result: Any) -> Decision:
        """Takes a result and returns whether the job goes on."""

    def fail(self, job: Job, reason: str, message: str = "") -> None:
        """Takes a failure; the job has ended."""

    def lost(self, jobs: Iterable[Job]) -> None:
        """Takes jobs back that ended through no fault of theirs."""


class JobDesk:
    """Knows which job each Ray trial is doing; the searcher and the scheduler share one.

    Attributes:
        live: The jobs handed out and not ended, by Ray's trial id.
        watch: Watches each of them.
    """

    def __init__(self, jobs: JobSource, watch: StallWatch) -> None:
        self.jobs = jobs
        self.live: dict[str, Job] = {}
        self.watch = watch
        self._stalled: set[str] = set()

    def take(self, trial_id: str) -> Job | NoJob:
        """Returns the next job, WAIT or END."""
        job = self.jobs.next_job()
        if isinstance(job, Job):
            self.live[trial_id] = job
            self.watch.begin(trial_id)
        return job

    def report(self, trial_id: str, result: Mapping[str, Any]) -> Decision:
        """Passes a result on and returns whether the job goes on.

        Raises:
            StoppedError: The job could not write its checkpoint; the record has it as unfinished.
        """
        if result.get("reason") == CANNOT_WRITE:
            raise StoppedError(result["message"])
        if result.get("reason"):
            self.fail(trial_id, result)
            return STOP
        job = self.live[trial_id]
        decision = self.jobs.report(job, result)
        if decision is STOP:
            self._close(trial_id)
        return decision

    def fail(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Ends a job as failed, by the result's reason and message."""
        job = self._close(trial_id)
        self.jobs.fail(job, result["reason"], result.get("message") or "")

    def fail_killed(self, trial_id: str) -> None:
        """Ends a job as failed because its process died."""
        failure = KILLED
        if trial_id in self._stalled:
            message = f"no batch for {self.watch.timeout_s:g} s (search.stall_timeout_s)"
            failure = {"reason": "stalled", "message": message}
        self.fail(trial_id, failure)

    def charge(self, killed: set[int]) -> int:
        """Fails the jobs of these processes and returns how many; one not known is any unknown."""
        pids = {trial_id: self.watch.pid(trial_id) for trial_id in self.live}
        is_one_unknown = bool(killed - set(pids.values()))
        charged = [
            trial_id
            for trial_id, pid in pids.items()
            if pid in killed or (is_one_unknown and pid is None)
        ]
        for trial_id in charged:
            self.fail(trial_id, OUT_OF_HOST_MEMORY)
        return len(charged)

    def end_stalled(self) -> bool:
        """Ends the processes of jobs that have stalled; says whether one has none to be ended."""
        stalled = self.watch.end_stalled()
        self._stalled.update(stalled)
        return any(self.watch.pid(trial_id) is None for trial_id in stalled)

    def give_back(self) -> None:
        """Gives back every live job, at no charge to it."""
        self.jobs.lost([self._close(trial_id) for trial_id in list(self.live)])

    def _close(self, trial_id: str) -> Job:
        self.watch.end(trial_id)
        return self.live.pop(trial_id)


class JobSearcher(Searcher):
    """Asks the desk for the next job; Tune calls it only when a slot is free."""

    def __init__(self, desk: JobDesk) -> None:
        super().__init__()
        self.desk = desk

    def suggest(self, trial_id: str) -> Any:
        """Returns the next job as a Ray config, None to ask again later, or FINISHED."""
        job = self.desk.take(trial_id)
        if job is WAIT:
            return None
        if job is END:
            return Searcher.FINISHED
        return {"job": asdict(job)}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """Does nothing: the scheduler hears of every end first."""

    def __getstate__(self) -> dict[str, Any]:
        """Keeps the desk out of the copy that Tune pickles for its restore, which is not used."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Saves nothing: the study is the truth."""


class JobScheduler(FIFOScheduler):
    """Tells the desk of every result and every end, and returns its decision.

    Args:
        desk: The desk that the searcher uses too.
        on_step: Called several times a second; raises to end the run.
    """

    def __init__(self, desk: JobDesk, on_step: Callable[[], None]) -> None:
        super().__init__()
        self.desk = desk
        self.on_step = on_step

    def __getstate__(self) -> dict[str, Any]:
        """Keeps the desk out of the copy that Tune pickles for its restore, which is not used."""
        return {}

    def choose_trial_to_run(self, tune_controller: Any) -> None:
        """Chooses none: Tune starts what is pending anyway, and the stock one scans all trials."""
        self.on_step()

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Returns Tune's word for the desk's decision."""
        decision = self.desk.report(trial.trial_id, result[RESULT][0])
        return str(self.STOP if decision is STOP else self.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Fails a job whose work returned before it was told to stop."""
        if trial.trial_id in self.desk.live:
            samples = self.desk.live[trial.trial_id].until_samples
            message = f"its work returned before samples_seen was {samples}"
            self.desk.fail(trial.trial_id, {"reason": "error", "message": message})

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Fails a job whose process died, or whose result could not be sent."""
        if trial.trial_id not in self.desk.live:
            return
        # trial.get_error() reads the copy in storage, which is not written yet.
        with open(trial.pickled_error_file, "rb") as file:
            error = cloudpickle.load(file)
        if isinstance(error, RayActorError):
            self.desk.fail_killed(trial.trial_id)
        else:
            message = str(error).strip().split("\n")[-1]
            self.desk.fail(trial.trial_id, {"reason": "error", "message": message})
