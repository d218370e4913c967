"""Stage prepare: every image opened once, verdicts in `dataset.json`, and decoded once."""

from dataclasses import replace

from tuner.assemble import mining_notes, short_step_notes
from tuner.data.prepare import PreparedData
from tuner.images import prepare_images
from tuner.reading import decode_images
from tuner.reporting.terminal import counting, say_under
from tuner.stages.course import Course
from tuner.stages.disk import look_at_disk
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
            may_mine=search.may_mine,
        )
    largest = max(search.possible_values("train.batch_size"))
    highest_ratio = max(search.possible_values("mining.ratio"))
    say_under(
        "prepare",
        f"{len(data.train)} training and {len(data.validation)} validation images "
        f"of {len(data.train.classes)} classes",
        *data.notes,
        *short_step_notes(largest, len(data.train)),
        *mining_notes(search.config, highest_ratio, is_told=len(data.first_hard) > 0),
    )
    return data


def decode(course: Course, data: PreparedData) -> Course:
    """Returns the course with the images decoded for all trials, where there is room; says so.

    Raises:
        DataError: `data.cache` insists on a file that cannot be kept; or an image has changed.
        RunError: No process can be started to decode them.
    """
    search = course.search
    need = look_at_disk(search, course.plan, course.work).need
    kept_bytes = []
    for config in stored_variants(search):
        with counting("decode") as progress:
            decoding = decode_images(
                config,
                data,
                search.cache_root,
                memory_bytes=course.machine.memory_bytes,
                num_processes=max(1, int(course.machine.cpus)),
                progress=progress,
                spared_bytes=need.least * need.checkpoint_bytes,
            )
        say_under("decode", decoding.told(config.data.cache, has_gpu=course.plan.num_gpus > 0))
        kept_bytes.append(0 if decoding.refusal else decoding.place.header.num_bytes)
    return replace(course, decoded_bytes=max(kept_bytes) if all(kept_bytes) else 0)
