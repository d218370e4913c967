"""The jobs of a stage on Ray, before everybody's eyes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tuner.images import images_root
from tuner.raytune.engine import RaySession, run_jobs
from tuner.reporting.live import LiveView
from tuner.search_logic.jobs import END, GO, STOP, Decision, Job, Jobs, NoJob
from tuner.settings.config import Config
from tuner.stages.clock import StageClock
from tuner.stages.course import Course
from tuner.stages.disk import look_at_disk
from tuner.stages.stored import StoredCheckpoints
from tuner.study.record import Record
from tuner.trial import TrialContext, run_job


def trial_context(course: Course, config: Config, stage: str) -> dict[str, Any]:
    """Returns what all jobs of a stage share, as plain values."""
    search = course.search
    return asdict(
        TrialContext(
            run_folder=str(search.folder),
            images_root=str(images_root(config, search.cache_root)),
            config_json=config.to_json(),
            threads=course.plan.threads,
            decoded_root=str(search.cache_root) if course.is_decoded else None,
            stage=stage,
            device_bytes=course.device_cache_bytes,
        )
    )


def run_stage(
    course: Course,
    session: RaySession,
    jobs: Jobs,
    record: Record,
    clock: StageClock,
    stored: StoredCheckpoints,
    *,
    stage: str,
    rungs: Sequence[int],
    expected_samples: int,
) -> None:
    """Works off the jobs, every slot busy, with a view of where they stand.

    Args:
        course: What is known of the search.
        session: The Ray to work on.
        jobs: What is to be done; nothing happens where it has been.
        record: Of `jobs`.
        clock: Ends the stage when its time is over, or too short; nothing happens where it was
            before.
        stored: Of `jobs`; keeps them within what the disk holds.
        stage: "search" or "confirm".
        rungs: Lengths in images, the last one the full length.
        expected_samples: Images of the whole stage.

    Raises:
        RunError: Ray was lost too often, or the disk is full; nothing finished is lost.
        ResourceError: The disk cannot hold the trials side by side.
    """
    if jobs.is_finished or jobs.lacks_time(clock.seconds_left):
        return
    look_at_disk(course.search, course.plan, course.work).check()  # measuring gives the slots
    config, plan = course.search.config, course.plan
    with LiveView(
        record,
        stage=stage,
        rungs=rungs,
        num_images=course.work.num_images,
        expected_samples=expected_samples,
        num_trials=jobs.num_trials,
        slots=plan.slots,
        parameters=record.parameters,
        images_per_s=course.images_per_s,
        seconds_left=clock.seconds_left,
    ) as view:
        run_jobs(
            session,
            plan,
            FollowedJobs(jobs, record, view, clock, stored),
            run_job,
            trial_context(course, config, stage),
            max_restarts=config.search.max_restarts,
            stall_timeout_s=config.search.stall_timeout_s,
        )


def counts_text(jobs: Jobs) -> str:
    """Returns how many trials ended how, for people."""
    return ", ".join(f"{count} {state}" for state, count in jobs.counts().items() if count)


class FollowedJobs:
    """Jobs whose every step is shown, as long as there is time, and which the disk has room for."""

    def __init__(
        self,
        jobs: Jobs,
        record: Record,
        view: LiveView,
        clock: StageClock,
        stored: StoredCheckpoints,
    ) -> None:
        self._jobs = jobs
        self._record = record
        self._view = view
        self._clock = clock
        self._stored = stored

    def next_job(self) -> Job | NoJob:
        """Returns a job for a free slot, WAIT or END."""
        job = self._jobs.next_job(self._clock.seconds_left)
        if isinstance(job, Job):
            self._stored.begin(job.trial_number)
            self._view.begin(job.trial_number, job.settings, job.start_samples)
        elif job is END:
            self._stored.settle()
        return job

    def report(self, job: Job, result: Mapping[str, Any]) -> Decision:
        """Takes a result, stamps it with the time, and returns whether the job goes on.

        It ends at its first report behind the budget, and at a rung where there is not enough time
        left for the next one: its slot may have a shorter job that there is.
        """
        seconds_left = self._clock.seconds_left
        decision = self._jobs.report(job, self._clock.stamped(result))
        if decision is GO and not self._jobs.pace.goes_on(job.trial_number, seconds_left):
            self._jobs.lost([job])
            decision = STOP
        if decision is STOP:
            self._stored.end(job.trial_number)
        trial = self._record.trials[job.trial_number]
        if trial.state == "failed":  # its score is no number
            self._view.fail(trial.number, trial.reason or "", trial.message or "", is_final=True)
        else:
            self._view.report(job.trial_number, result, goes_on=decision is GO)
        return decision

    def fail(self, job: Job, reason: str, message: str = "") -> None:
        """Takes a failure; the job has ended."""
        self._jobs.fail(job, reason, message)
        self._stored.end(job.trial_number)
        is_final = self._record.trials[job.trial_number].state != "running"
        self._view.fail(job.trial_number, reason, message, is_final=is_final)

    def lost(self, jobs: Iterable[Job]) -> None:
        """Takes jobs back that ended through no fault of theirs."""
        taken_back = list(jobs)
        self._jobs.lost(taken_back)
        for job in taken_back:
            self._stored.end(job.trial_number)
        self._view.lost(job.trial_number for job in taken_back)
