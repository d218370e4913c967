"""Stage search: trials on Ray, until no job is left; and the record that holds them."""

from tuner.data.prepare import PreparedData, write_dataset_record
from tuner.errors import RunError
from tuner.files import write_text
from tuner.planning.resources import Plan
from tuner.raytune.engine import RaySession
from tuner.reporting.terminal import count_text, say_under
from tuner.search_logic.jobs import Jobs
from tuner.settings.identity import binding_settings
from tuner.settings.load import SPEED_KEYS
from tuner.settings.space import spec_to_plain
from tuner.settings.text import yaml_text
from tuner.stages.course import Course
from tuner.stages.follow import counts_text, run_stage
from tuner.stages.opening import Search
from tuner.stages.tables import write_leaderboard
from tuner.study.record import Record


def open_record(search: Search, data: PreparedData) -> Record:
    """The durable record of the search, begun or gone on with.

    Raises:
        StudyError: It was made for another space, metric, length or other images.
    """
    space, config = search.space, search.config
    searched = {*space.parameters, *SPEED_KEYS, "search.metric"}
    record = Record.open(
        search.folder,
        name=search.name,
        metric=config.search.metric,
        direction=config.search.direction,
        parameters=space.parameters,
        data_fingerprint=data.fingerprint,
        settings_plain={
            key: value for key, value in binding_settings(config).items() if key not in searched
        },
    )
    write_dataset_record(search.folder / "dataset.json", data)  # trials read it
    sections = {
        section: {key: spec_to_plain(spec) for key, spec in specs.items()}
        for section, specs in (("parameters", space.parameters), ("throughput", space.throughput))
        if specs
    }
    write_text(search.folder / "config.yaml", yaml_text(config.model_dump() | sections))
    return record


def open_jobs(search: Search, record: Record, num_images: int) -> Jobs:
    """What hands out the jobs, at where the record stands."""
    asked = search.config.search
    return Jobs(
        record,
        search.space.parameters,
        trials=asked.trials,
        sampler=asked.sampler,
        scheduler=asked.scheduler,
        rungs=search.rungs(num_images),
        reduction_factor=asked.reduction_factor,
        max_failures=asked.max_failures,
        seed=asked.seed,
    )


def train_trials(course: Course, record: Record, session: RaySession) -> None:
    """Trains the trials, every slot busy, until no job is left, and writes the leaderboard.

    Raises:
        RunError: No trial has a score, or the search was lost; nothing finished is lost.
    """
    jobs = open_jobs(course.search, record, course.work.num_images)
    say_threads(course.plan, record)
    run_stage(
        course,
        session,
        jobs,
        record,
        stage="search",
        rungs=course.work.rungs,
        expected_samples=course.work.search_samples,
    )
    if jobs.exhausted:
        say_under("search", "every combination of the space has been tried")
    say_under("search", f"{count_text(len(record.trials), 'trial')}: {counts_text(jobs)}")
    write_leaderboard(course, record)
    if record.best_score(record.ranked()[0].number) is None:
        raise RunError(f"no trial has a score: {why_none(record)}; mend it, then use resume=never")


def say_threads(plan: Plan, record: Record) -> None:
    """Says it where trials so far had other torch threads: their last bits would differ now."""
    before = {report["threads"] for trial in record.trials for report in trial.reports}
    if before - {plan.threads}:
        say_under(
            "search",
            f"torch threads were {', '.join(map(str, sorted(before)))} and are {plan.threads} now: "
            "the last bits of results differ",
        )


def why_none(record: Record) -> str:
    """Why trials ended, every reason once, with what the first of its trials said."""
    messages = {trial.reason: trial.message for trial in reversed(record.trials) if trial.reason}
    return "; ".join(f"{reason} ({messages[reason]})" for reason in sorted(messages))
