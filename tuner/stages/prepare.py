"""Stage prepare: every image opened once, verdicts in `dataset.json`."""

from tuner.assemble import short_step_notes
from tuner.data.prepare import PreparedData
from tuner.images import decode_images, prepare_images
from tuner.reporting.terminal import counting, say_under
from tuner.stages.course import Course
from tuner.stages.work import stored_variants


def prepare(course: Course) -> PreparedData:
    """Returns the images, each opened once.

    Raises:
        DataError: The images cannot be used; one line for each reason.
    """
    search, plan = course.search, course.plan
    with counting("prepare") as progress:
        data = prepare_images(
            search.config,
            search.cache_root,
            report_path=search.folder / "dataset.json",
            num_processes=plan.slots * plan.threads,
            progress=progress,
        )
    largest = max(search.possible_values("train.batch_size"))
    say_under(
        "prepare",
        f"{len(data.train)} training and {len(data.validation)} validation images "
        f"of {len(data.train.classes)} classes",
        *data.notes,
        *short_step_notes(largest, len(data.train)),
    )
    decode(course, data)
    return data


def decode(course: Course, data: PreparedData) -> None:
    """Decodes the images once for all trials, where there is room, and says so."""
    search, plan = course.search, course.plan
    for config in stored_variants(search):
        with counting("decode") as progress:
            told = decode_images(
                config,
                data,
                search.cache_root,
                memory_bytes=course.machine.memory_bytes,
                num_processes=plan.slots * plan.threads,
                progress=progress,
            )
        say_under("", told)
