"""Stage confirm: the best configurations again, in full, on fresh seeds; the mean decides."""

from tuner.raytune.engine import RaySession
from tuner.reporting.terminal import count_text, say_under
from tuner.search_logic.confirm import confirm_jobs, confirm_points
from tuner.stages.clock import StageClock
from tuner.stages.course import Course
from tuner.stages.follow import counts_text, run_stage
from tuner.stages.stored import confirm_checkpoints
from tuner.stages.train import num_left, open_jobs
from tuner.study.record import Record


def confirm(
    course: Course, record: Record, session: RaySession, how_to_go_on: str
) -> Record | None:
    """Trains the confirm runs that are not there yet and returns their record.

    None where none are asked for. `how_to_go_on` is for people, where an error has ended it.

    Raises:
        RunError: The search was lost; nothing finished is lost.
        ResourceError: The disk cannot hold the runs side by side.
    """
    config = course.search.config
    points = confirm_points(
        record,
        top=config.search.confirm_top,
        num_seeds=config.search.confirm_seeds,
        seed=config.train.seed,
    )
    if not points:
        return None
    full_length = course.work.rungs[-1]
    runs = record.open_confirm()
    jobs = confirm_jobs(
        runs, points, total_samples=full_length, max_failures=config.search.max_failures
    )
    run_stage(
        course,
        session,
        jobs,
        runs,
        StageClock(runs, "confirm"),
        confirm_checkpoints(course, record, open_jobs(course, record), runs),
        stage="confirm",
        rungs=[full_length],
        expected_samples=jobs.num_trials * full_length,
    )
    if jobs.fatal:
        is_left = num_left(jobs, runs) > 0
        more = how_to_go_on if is_left else "then raise search.confirm_seeds or use resume=never"
        say_under("confirm", f"ended, three runs failed alike: {jobs.fatal}; mend it; {more}")
    say_under("confirm", f"{count_text(len(runs.trials), 'run')}: {counts_text(jobs)}")
    return runs
