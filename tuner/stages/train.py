"""Stage search: trials on Ray, until no job is left; and the record that holds them."""

from tuner.data.changes import describe_image_changes
from tuner.data.prepare import PreparedData, write_dataset_record
from tuner.errors import RunError, StoppedError
from tuner.files import write_text
from tuner.planning.resources import Plan
from tuner.raytune.engine import RaySession
from tuner.reporting.terminal import count_text, duration_text, say_under
from tuner.search_logic.jobs import Jobs
from tuner.search_logic.points import Points
from tuner.settings.identity import binding_settings
from tuner.settings.load import SPEED_KEYS
from tuner.settings.space import spec_to_plain
from tuner.settings.text import yaml_text
from tuner.stages.clock import StageClock
from tuner.stages.course import Course
from tuner.stages.follow import counts_text, run_stage
from tuner.stages.opening import Search, weights_identity
from tuner.stages.stored import search_checkpoints
from tuner.stages.tables import write_leaderboard
from tuner.study.record import Record


def open_record(search: Search, data: PreparedData, points: Points) -> Record:
    """The durable record of the search, begun with the points or gone on with.

    Raises:
        StudyError: It was made for another space, metric, length, or other images or weights.
        SettingsError: A file of weights is gone.
    """
    space, config = search.space, search.config
    searched = {*space.parameters, *SPEED_KEYS, "search.metric"}
    dataset_json = search.folder / "dataset.json"
    record = Record.open(
        search.folder,
        name=search.name,
        metric=config.search.metric,
        direction=config.search.direction,
        parameters=space.parameters,
        data_fingerprint=data.fingerprint,
        settings_plain={
            key: value for key, value in binding_settings(config).items() if key not in searched
        }
        | weights_identity(search),
        points=points.settings,
        points_from=points.source,
        data_changes=describe_image_changes(dataset_json, data),
    )
    write_dataset_record(dataset_json, data)  # trials read it
    sections = {
        section: {key: spec_to_plain(spec) for key, spec in specs.items()}
        for section, specs in (("parameters", space.parameters), ("throughput", space.throughput))
        if specs
    }
    write_text(search.folder / "config.yaml", yaml_text(config.model_dump() | sections))
    return record


def open_jobs(course: Course, record: Record) -> Jobs:
    """What hands out the jobs of the search, at where the record of its trials stands."""
    search, work = course.search, course.work
    asked = search.config.search
    return Jobs(
        record,
        search.space.parameters,
        points=record.points,
        trials=asked.trials,
        sampler=asked.sampler,
        scheduler=asked.scheduler,
        rungs=search.rungs(work.num_images),
        reduction_factor=asked.reduction_factor,
        max_failures=asked.max_failures,
        seed=asked.seed,
        patience=asked.patience,
        seconds_per_image=course.seconds_per_image,
        chance=work.chance,
    )


def train_trials(course: Course, record: Record, session: RaySession) -> None:
    """Trains the trials until no job or no time is left, and writes the leaderboard.

    Raises:
        RunError: No trial has a score, or the search was lost; nothing finished is lost.
        StoppedError: No trial has a score, and there are others to try.
        ResourceError: The disk cannot hold the trials side by side.
    """
    work = course.work
    jobs = open_jobs(course, record)
    clock = StageClock(record, "search", course.search.config.search.time_budget_s)
    stored = search_checkpoints(course, record, jobs)
    say_other_hardware(course.plan, record)
    run_stage(
        course,
        session,
        jobs,
        record,
        clock,
        stored,
        stage="search",
        rungs=work.rungs,
        expected_samples=work.search_samples,
    )
    seconds_left = clock.seconds_left
    if jobs.exhausted:
        say_under("search", "every combination of the space has been tried")
    if record.trials:
        say_under("search", f"{count_text(len(record.trials), 'trial')}: {counts_text(jobs)}")
        write_leaderboard(course, record)
    if not has_score(record):
        raise no_score(jobs, record, seconds_left)
    if has_given_up(jobs, record):
        say_under("search", patience_text(course.search.config.search.patience))
    if jobs.lacks_time(seconds_left) and num_left(jobs, record):
        say_under("search", time_over_text(jobs, record, seconds_left))


def has_given_up(jobs: Jobs, record: Record) -> bool:
    """Says whether nothing but patience keeps the search from trying more."""
    is_left = not jobs.exhausted and len(record.trials) < jobs.num_trials
    return is_left and jobs.out_of_patience and jobs.is_finished


def patience_text(patience: int | None) -> str:
    """Returns why no more is tried, and how to go on."""
    last = "trial" if patience == 1 else f"{patience} trials"
    return f"no better score in the last {last}: the search ends; a larger search.patience goes on"


def num_left(jobs: Jobs, record: Record) -> int:
    """Returns how many trials wait or have not been tried."""
    return jobs.counts()["waiting"] + num_untried(jobs, record)


def num_untried(jobs: Jobs, record: Record) -> int:
    """Returns how many trials there will be beside those there are."""
    has_end = jobs.exhausted or jobs.out_of_patience
    return 0 if has_end else jobs.num_trials - len(record.trials)


def time_over_text(jobs: Jobs, record: Record, seconds_left: float) -> str:
    """Returns what is left undone where the time is over or too short, and how to go on."""
    waiting, left = count_text(jobs.counts()["waiting"], "trial"), duration_text(seconds_left)
    how = "over" if seconds_left <= 0 else f"too short for another rung ({left} left)"
    return (
        f"the time is {how}: {waiting} waiting, {num_untried(jobs, record)} not begun; "
        "a larger search.time_budget_s goes on"
    )


def has_score(record: Record) -> bool:
    """Says whether any trial has a score."""
    return any(record.best_score(trial.number) is not None for trial in record.ranked()[:1])


def no_score(jobs: Jobs, record: Record, seconds_left: float) -> RunError:
    """Returns what says why there is nothing to hand over: stopped where there is more to try."""
    is_left = num_left(jobs, record) > 0
    if is_left and not jobs.fatal and jobs.lacks_time(seconds_left):
        what = "over before any trial had a score"
        if seconds_left > 0:
            left, needed = map(duration_text, (seconds_left, jobs.pace.seconds_to_rung()))
            what = f"{left} left, the first rung takes about {needed}"
        return StoppedError(f"search.time_budget_s: {what}; raise it")
    why = f"three failed alike ({jobs.fatal})" if jobs.fatal else why_none(record)
    problem = f"no trial has a score: {why}; mend it"
    if is_left:
        return StoppedError(problem)
    bound = "patience" if has_given_up(jobs, record) else "trials"
    more = "" if jobs.exhausted else f"raise search.{bound} or "
    return RunError(f"{problem}, then {more}use resume=never")


def say_other_hardware(plan: Plan, record: Record) -> None:
    """Says it where trials so far had another device or other torch threads than they would now."""
    reports = [report for trial in record.trials for report in trial.reports]
    device = "cuda" if plan.num_gpus else "cpu"
    devices = {report["device"] for report in reports}
    if devices - {device}:
        was = ", ".join(sorted(devices))
        say_under("search", f"the device was {was} and is {device} now: results differ")
    threads = {report["threads"] for report in reports}
    if threads - {plan.threads}:
        was = ", ".join(map(str, sorted(threads)))
        say_under(
            "search",
            f"torch threads were {was} and are {plan.threads} now: the last bits of results differ",
        )


def why_none(record: Record) -> str:
    """Why trials ended, every reason once, with what the first of its trials said."""
    messages = {trial.reason: trial.message for trial in reversed(record.trials) if trial.reason}
    return "; ".join(f"{reason} ({messages[reason]})" for reason in sorted(messages))
