"""Stage measure: the throughput settings, by real training steps side by side."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from math import ceil, floor, log2
from typing import Any

from tuner.errors import RunError, StoppedError
from tuner.planning.cost import measure_budget_s
from tuner.planning.gpu_share import trials_per_gpu
from tuner.planning.resources import Plan
from tuner.planning.throughput import (
    IMAGES_FROM,
    NUM_WORKERS,
    Choice,
    Row,
    Settings,
    candidates,
    choose,
    throughput_csv,
    what_limits,
)
from tuner.probe import measure_speed
from tuner.raytune.engine import RaySession
from tuner.raytune.measure import Probes, probes
from tuner.reporting.terminal import counting, say_under
from tuner.settings.config import flatten
from tuner.settings.space import ParameterSpec
from tuner.stages.course import Course, plan_trials, say_estimate, say_machine
from tuner.stages.follow import trial_context
from tuner.stages.speeds import Speeds, keep_in_run, recall, remember, speeds_of_run
from tuner.stages.work import largest_step

SHARE_WINDOW_S = 2.0
LIMIT_WINDOW_S, LIMIT_STEPS = 0.5, 4  # each window is at least so long
LIMIT_SHARE = 0.2  # of the time of this stage, on a GPU
LIMITS = {  # by what `what_limits` says, and whether images come decoded
    ("compute", False): "computing",
    ("compute", True): "computing",
    ("copy", False): "copying images to the GPU",
    ("copy", True): "copying images to the GPU",
    ("images", False): "decoding images",
    ("images", True): "reading decoded images",
}
MOST_TRIALS_PER_GPU = 8
NO_SPEED_BUDGET_S = 20.0


def measure(course: Course, fingerprint: str, session: RaySession, *, has_trials: bool) -> Course:
    """Returns the course with the throughput settings pinned, and writes `throughput.csv`.

    A search that has trials keeps what they were trained with, also where nothing could be measured
    when it began. What is remembered of this machine and these images is not measured again. Where
    nothing can be measured the search goes on without: speed changes no result.

    Raises:
        StoppedError: Ray was lost more often than `search.max_restarts` allows.
    """
    search = course.search
    if has_trials and (known := speeds_of_run(search.folder)):
        say_under("measure", f"{told(known)}, as this search began")
        return pinned(course, known)
    if not (search.space.throughput or is_share_open(course)):
        say_under("measure", "nothing to choose: the space has no throughput settings")
        return course
    if has_trials:
        say_under("measure", "this search began without; the settings stay as they are")
        return course
    known = recall(search, course.plan, course.machine)
    if known and (known.data_fingerprint, known.is_decoded) == (fingerprint, course.is_decoded):
        say_under("measure", f"{told(known)}, as measured on {known.measured_on}")
        keep_in_run(search.folder, known)
        return pinned(course, known)
    started = time.monotonic()
    try:
        known = measure_again_where_lost(course, fingerprint, session)
    except StoppedError:
        raise
    except RunError as error:
        say_under("measure", f"{error}; the settings stay as they are")
        return course
    keep_in_run(search.folder, known)
    return measured(pinned(course, known), known, time.monotonic() - started)


def measure_again_where_lost(course: Course, fingerprint: str, session: RaySession) -> Speeds:
    """Returns what `measure_speeds` does, on a new Ray wherever one was lost.

    Raises:
        RunError: Nothing can be measured.
        StoppedError: Ray was lost more often than `search.max_restarts` allows.
    """
    num_losses = 0
    while True:
        try:
            return measure_speeds(course, fingerprint, session)
        except StoppedError as error:
            num_losses += 1
            if num_losses > course.search.config.search.max_restarts:
                raise
            say_under("measure", f"{error}; measured again")


def measured(course: Course, known: Speeds, seconds: float) -> Course:
    """Says what was measured and what it means for the rest, of which it returns the time."""
    say_under("measure", told(known))
    if known.gpus_per_trial is not None:
        say_machine(course)
    rest = course.work.estimate(known.images_per_s, course.plan.slots, has_to_measure=False)
    say_estimate(rest, "by the measured speed")
    return replace(course, expected_s=course.expected_s or seconds + rest.seconds)


def pinned(course: Course, known: Speeds) -> Course:
    """Returns the course with what was measured; a key that is not measured stays as it is."""
    search = course.search
    settings = {key: known.pinned[key] for key in search.space.throughput if key in known.pinned}
    return replace(
        course,
        search=search.with_settings(settings),
        plan=plan_trials(search, course.machine, known.gpus_per_trial),
        images_per_s=known.images_per_s,
    )


def is_share_open(course: Course) -> bool:
    """Says whether the share of a GPU that a trial gets is left to be measured."""
    config = course.search.config
    is_auto = config.resources.gpus_per_trial == config.search.max_concurrent == "auto"
    return is_auto and course.plan.num_gpus > 0 and most_trials_per_gpu(course) > 1


def measure_speeds(course: Course, fingerprint: str, session: RaySession) -> Speeds:
    """Returns the fastest settings, and what a table of all of them says; remembers them.

    Raises:
        RunError: Nothing can be measured.
        StoppedError: Ray was lost.
    """
    search = course.search
    share = find_gpu_share(course, session) if is_share_open(course) else None
    plan = plan_trials(search, course.machine, share)
    specs, notes = what_matters(course)
    settings, more_notes = candidates(specs, flatten(search.config))
    notes += more_notes
    kept = with_workers_for(plan.cpus_per_trial, settings)
    if len(kept) < len(settings):
        notes += (f"more loader workers than a trial has CPUs ({plan.cpus_per_trial:g}): left out",)
    for note in notes:
        say_under("measure", note)
    with (
        counting("measure") as progress,
        probes(session, plan, measure_speed, context(course, plan)) as found,
    ):
        budget_s = budget_of(course, plan)
        sources = image_sources(course, plan)
        limit_s = LIMIT_SHARE * budget_s if sources else 0.0
        if limit_s < 2 * len(sources) * LIMIT_WINDOW_S:
            sources, limit_s = (), 0.0
        started = time.monotonic()

        def measure_window(settings: Settings, seconds: float) -> Sequence[Mapping[str, Any]]:
            progress(min(int(time.monotonic() - started), ceil(budget_s)), ceil(budget_s))
            return found.measure(settings, seconds)

        choice = choose(kept, measure_window, budget_s=budget_s - limit_s, clock=time.monotonic)
        if plan.num_gpus:
            batch_size = min(largest_step(search).train.batch_size, course.work.num_images)
            limit = find_limit(found, choice, batch_size, sources=sources, limit_s=limit_s)
        else:
            num_workers = {**flatten(search.config), **choice.pinned.settings}[NUM_WORKERS]
            limit = limit_by_waits(choice.pinned, 0 if course.is_decoded else num_workers)
    speeds = Speeds(
        pinned=dict(choice.pinned.settings),
        images_per_s=choice.images_per_s_each,
        gpus_per_trial=share,
        data_fingerprint=fingerprint,
        is_decoded=course.is_decoded,
        limit=limit,
        measured_on=date.today().isoformat(),
        table=throughput_csv(choice),
    )
    try:
        remember(search, course.plan, course.machine, speeds)
    except RunError as error:
        say_under("measure", f"not remembered: {error}")
    return speeds


def what_matters(course: Course) -> tuple[dict[str, ParameterSpec], tuple[str, ...]]:
    """Returns the throughput settings that can make a difference, and why others are left out."""
    specs = course.search.space.throughput
    if not course.is_decoded:
        return specs, ()
    kept = {key: spec for key, spec in specs.items() if not key.startswith("loader.")}
    left_out = [key for key in specs if key not in kept]
    if not left_out:
        return specs, ()
    return kept, (f"decoded images need no loader workers: {', '.join(left_out)} left out",)


def image_sources(course: Course, plan: Plan) -> tuple[str, ...]:
    """Returns whence training is timed to tell what limits it on a GPU; nothing on a CPU."""
    if not plan.num_gpus:
        return ()
    return ("loader", "device") if bytes_on_card(course, plan) else ("loader", "memory", "device")


def limit_by_waits(pinned: Row, num_workers: int) -> str:
    """Returns what limits training on a CPU, nothing where workers may cost what is not waited."""
    waited = pinned.data_wait_share or 0.0
    limit = what_limits(read=1 - waited, held=1.0, on_device=1.0)
    return limit if limit == "images" or not num_workers else ""


def find_limit(
    found: Probes, choice: Choice, batch_size: int, *, sources: Sequence[str], limit_s: float
) -> str:
    """Returns what limits training on a GPU; nothing where it would take too long to tell.

    A GPU computes while the host waits, so training is compared with training on images that are
    in memory already, and on its own.

    Args:
        found: What measures.
        choice: What was measured.
        batch_size: Images of a step.
        sources: As `image_sources` says.
        limit_s: Seconds that it may take.
    """
    step_s = batch_size / choice.images_per_s_each
    window_s = max(LIMIT_WINDOW_S, LIMIT_STEPS * step_s)
    if 2 * len(sources) * (window_s + step_s) > limit_s:
        return ""
    speeds = dict.fromkeys(sources, 0.0)
    for order in (sources, sources[::-1]):  # a machine that slows down favours nobody
        for images_from in order:
            settings = {**choice.pinned.settings, IMAGES_FROM: images_from}
            found.measure(settings, 0.0)  # all begin together
            results = found.measure(settings, window_s)
            if any(result.get("reason") for result in results):
                return ""
            speeds[images_from] += sum(result["images_per_s"] for result in results)
    on_device = speeds["device"]
    return what_limits(
        read=speeds["loader"], held=speeds.get("memory", on_device), on_device=on_device
    )


def with_workers_for(cpus: float, settings: Sequence[Settings]) -> Sequence[Settings]:
    """Returns the settings whose loader workers do not take the CPUs of other trials."""
    most = max(1, floor(cpus))
    return [each for each in settings if each.get("loader.num_workers", 0) <= most] or settings[:1]


def context(course: Course, plan: Plan) -> dict[str, Any]:
    """Returns what the probes share: trials of the space's largest step."""
    config = largest_step(course.search)
    return trial_context(replace(course, plan=plan), config, "search")


def told(known: Speeds) -> str:
    """Returns what was found, for people."""
    pinned = [f"{key}={value}" for key, value in known.pinned.items()]
    if known.gpus_per_trial is not None:
        pinned.append(f"resources.gpus_per_trial={known.gpus_per_trial:g}")
    speed = f"{known.images_per_s:.0f} images/s a trial"
    if known.limit:
        speed += f", limited by {LIMITS[known.limit, known.is_decoded]}"
    return f"{' '.join(pinned)}: {speed}" if pinned else speed


def most_trials_per_gpu(course: Course) -> int:
    """Returns how many trials could share a card, a power of two: each has its CPUs, none is idle.

    Doublings are all that is tried.
    """
    config, num_gpus = course.search.config, course.plan.num_gpus
    cpus = config.resources.cpus_per_trial
    by_cpu = course.machine.cpus / (1.0 if isinstance(cpus, str) else cpus) / num_gpus
    most = min(by_cpu, config.search.trials / num_gpus, MOST_TRIALS_PER_GPU)
    return 2 ** floor(log2(max(1.0, most)))


def budget_of(course: Course, plan: Plan) -> float:
    """Returns the seconds that measuring may take."""
    if course.images_per_s is None:  # only a GPU knows, and nobody has asked it
        return NO_SPEED_BUDGET_S
    return measure_budget_s(course.work.search_s(course.images_per_s, plan.slots))


def bytes_on_card(course: Course, plan: Plan) -> int:
    """Returns what decoded images take of a trial's card, 0 where they do not go there."""
    is_kept = course.search.config.data.cache != "decoded"
    room_bytes = replace(course, plan=plan).device_cache_bytes
    return course.decoded_bytes if is_kept and course.decoded_bytes <= room_bytes else 0


def uncounted_bytes(course: Course, plan: Plan) -> int:
    """Returns what trials of more than this share may keep on the card that these do not."""
    is_kept = course.search.config.data.cache != "decoded"
    return course.decoded_bytes if is_kept and not bytes_on_card(course, plan) else 0


def find_gpu_share(course: Course, session: RaySession) -> float:
    """Returns the share of one card at which trials side by side train most images/s in all."""
    most = most_trials_per_gpu(course)
    cpus = course.search.config.resources.cpus_per_trial
    cpus = 1.0 if isinstance(cpus, str) else cpus
    plan = replace(
        course.plan, gpus_per_trial=1 / most, cpus_per_trial=cpus, threads=max(1, floor(cpus))
    )
    with probes(
        session, plan, measure_speed, context(course, plan), num_probes=most, is_fenced=False
    ) as found:

        def measure_shared(num_trials: int) -> float | None:
            found.measure({}, 0.0, num_side_by_side=num_trials)  # each builds its model first
            results = found.measure({}, SHARE_WINDOW_S, num_side_by_side=num_trials)
            if any(result.get("reason") for result in results):
                return None
            return sum(result["images_per_s"] for result in results)

        found.measure({}, 0.0, num_side_by_side=1)
        alone = found.measure({}, SHARE_WINDOW_S, num_side_by_side=1)[0]
        if alone.get("reason"):
            return 1.0  # told by the measurement that follows
        num_trials = trials_per_gpu(
            measure_shared,
            peak_memory_bytes=alone["peak_memory_bytes"],
            decoded_bytes=uncounted_bytes(course, plan),
            card_memory_bytes=min(gpu.memory_bytes for gpu in course.machine.gpus),
            most=most,
        )
    return 1 / num_trials
