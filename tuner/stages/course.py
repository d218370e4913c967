"""Before anything starts: what the machine can give, what will be trained, what it will cost."""

from dataclasses import dataclass, replace

from tuner.data.prepare import PreparedData
from tuner.images import count_test_images
from tuner.planning.cost import Estimate, Work
from tuner.planning.decoded import device_cache_bytes
from tuner.planning.machine import Machine, look
from tuner.planning.resources import Plan, plan_resources
from tuner.raytune.engine import OBJECT_STORE_BYTES, Dashboard, OnDashboard, check_address
from tuner.reporting.terminal import bytes_text, count_text, duration_text, say, say_under
from tuner.search_logic.points import Points
from tuner.settings.wording import shown_path
from tuner.stages.disk import Disk, look_at_disk
from tuner.stages.look import look_at_speed
from tuner.stages.networks import FittedWeights, check_networks, say_weights
from tuner.stages.opening import Search, has_begun
from tuner.stages.points import find_points, say_points
from tuner.stages.speeds import Speeds, recall, speeds_of_run
from tuner.stages.work import count_images, plan_work, planned_decoded_bytes


@dataclass(frozen=True, slots=True)
class Course:
    """A search, and what is known of how it will go on this machine.

    Attributes:
        images_per_s: Of one trial beside the others; None where nobody has measured.
        expected_s: What measure, search and confirm were expected to take when it was opened.
        points: What it begins with.
        decoded_bytes: Of all images decoded, where all trials find them so; else 0.
        weights: What weights files give the models.
    """

    search: Search
    machine: Machine
    plan: Plan
    work: Work
    images_per_s: float | None = None
    expected_s: float | None = None
    points: Points = Points()
    decoded_bytes: int = 0
    weights: tuple[FittedWeights, ...] = ()

    @property
    def is_decoded(self) -> bool:
        """Whether all trials find their images decoded."""
        return self.decoded_bytes > 0

    @property
    def seconds_per_image(self) -> float | None:
        """What a trial takes for a training image, evaluations included; None where unknown."""
        return self.work.seconds_per_image(self.images_per_s) if self.images_per_s else None

    @property
    def on_dashboard(self) -> OnDashboard:
        """Tells where Ray's dashboard is; None where it is not asked for."""
        return say_dashboard if self.search.config.resources.dashboard else None

    @property
    def device_cache_bytes(self) -> int:
        """What decoded images may take of the GPU of a trial; 0 without one."""
        card_bytes = min((gpu.memory_bytes for gpu in self.machine.gpus), default=0)
        return device_cache_bytes(self.plan.gpus_per_trial, card_bytes)

    def with_images(self, data: PreparedData) -> "Course":
        """The same with the images that are really there."""
        counts = (len(data.train), len(data.validation), len(data.train.classes))
        return replace(self, work=plan_work(self.search, *counts))


def open_course(search: Search, *, is_dry_run: bool) -> Course:
    """Returns and tells what the search will do here; nothing is started or written.

    Raises:
        SettingsError: There is no such model, it cannot take such images, or a list of points
            cannot be read.
        DataError: There is no folder of images that can be listed.
        ResourceError: The machine cannot give what is asked, or its disk cannot.
        StudyError: The earlier search that `search.points` names gives no points.
    """
    course = replace(plan_course(search, may_download=not is_dry_run), points=find_points(search))
    num_test = count_test_images(search.config)
    known = speeds_of_run(search.folder) or recall(search, course.plan, course.machine)
    shared = course
    if known:
        plan = plan_trials(search, course.machine, known.gpus_per_trial)
        shared = replace(course, plan=plan)
    disk = look_at_disk(search, shared.plan, course.work)
    if is_dry_run or not has_begun(search.folder):
        disk.check()  # later it is checked only where something is left to train
    say_plan(shared, num_test)
    say_weights(course.weights)
    say_points(search, course.points)
    say_disk(search, disk, planned_decoded_bytes(search, course.work))
    say_machine(shared)
    images_per_s = foresee(shared, known, may_use_gpu=is_dry_run)
    if images_per_s is None:
        return course
    has_to_measure = known is None and bool(search.space.throughput)
    estimate = course.work.estimate(images_per_s, shared.plan.slots, has_to_measure=has_to_measure)
    say_estimate(estimate, basis_text(search, known))
    return replace(course, expected_s=estimate.seconds, images_per_s=images_per_s)


def plan_course(search: Search, *, may_download: bool = True) -> Course:
    """Returns how the search will go here, as far as the machine and the settings tell.

    A set of torchvision is downloaded to be counted where the settings and `may_download` allow it.

    Raises:
        SettingsError: There is no such model, or it cannot take such images.
        DataError: There is no folder of images that can be listed.
        ResourceError: The machine cannot give what is asked.
    """
    check_address()
    machine = look()
    plan = plan_trials(search, machine)
    for note in search.space.notes:
        say(note)
    num_images, num_validation, num_classes = count_images(search, may_download=may_download)
    weights = check_networks(search, num_classes)
    work = plan_work(search, num_images, num_validation, num_classes)
    return Course(search, machine, plan, work, weights=weights)


def plan_trials(search: Search, machine: Machine, gpus_per_trial: float | None = None) -> Plan:
    """Returns how trials share the machine.

    Args:
        search: Its settings decide.
        machine: What there is.
        gpus_per_trial: The measured share; it counts where the settings leave it open.

    Raises:
        ResourceError: The machine cannot give what is asked.
    """
    config = search.config
    is_open = config.resources.gpus_per_trial == config.search.max_concurrent == "auto"
    measured = gpus_per_trial if is_open and machine.gpus else None
    return plan_resources(
        machine,
        cpus_per_trial=config.resources.cpus_per_trial,
        gpus_per_trial=measured or config.resources.gpus_per_trial,
        max_concurrent=config.search.max_concurrent,
        num_trials=config.search.trials,
    )


def foresee(course: Course, known: Speeds | None, *, may_use_gpu: bool) -> float | None:
    """Returns the images a second of a trial, or says that only measuring will tell.

    A look at a GPU takes a part of its memory as long as this process lives.
    """
    if known:
        return known.images_per_s
    if not course.plan.num_gpus or may_use_gpu:
        found = look_at_speed(course.search, course.plan, course.work.num_images)
        if found is not None:
            return found
    say_under("time", "not known before it is measured")
    return None


def basis_text(search: Search, known: Speeds | None) -> str:
    """Returns what an estimate rests on, for people."""
    whole = ", for the whole search with what is done" if has_begun(search.folder) else ""
    if known:
        return f"by the speed measured on {known.measured_on}{whole}"
    return f"by the model's speed on random pixels; reading images comes on top{whole}"


def say_plan(course: Course, num_test: int) -> None:
    """Prints what will be done, stage by stage, and where it goes."""
    search, work = course.search, course.work
    config = search.config
    lengths = [f"{length / work.num_images:g}" for length in work.rungs]
    ends = f"rungs at {', '.join(lengths[:-1])} and {lengths[-1]} epochs"
    if len(lengths) == 1:
        ends = count_text(config.train.epochs, "epoch")
    if config.search.time_budget_s is not None:
        ends += f", at most {duration_text(config.search.time_budget_s)}"
    if config.search.patience is not None:
        ends += f", until {count_text(config.search.patience, 'trial')} bring nothing better"
    names = ", ".join(map(str, search.possible_values("model.name")))
    num_seeds, num_runs = config.search.confirm_seeds, work.confirm_runs
    test = f", and {count_text(num_test, 'test image')}" if num_test else ""
    confirmed = (
        f"the best {num_runs // num_seeds} again on {count_text(num_seeds, 'fresh seed')}, "
        f"{count_text(num_runs, 'run')}"
    )
    say_under(
        "plan",
        f"prepare {work.num_images} training and {work.num_validation} validation images{test}",
        f"measure: {' x '.join(search.space.throughput) or 'nothing to choose'}",
        f"search: {count_text(work.trials, 'trial')} of {names} at {config.data.image_size} px, "
        f"{ends}",
        f"confirm: {confirmed if num_runs else 'nothing'}",
    )


def say_disk(search: Search, disk: Disk, decoded_bytes: int) -> None:
    """Prints what checkpoints and decoded images will take at most, and where."""
    most = bytes_text(min(disk.need.most_bytes, disk.budget.num_bytes))
    is_asked = disk.budget.asked_gb is not None
    allowed = f"; disk_budget_gb allows {bytes_text(disk.budget.num_bytes)}" if is_asked else ""
    decoded = []
    if decoded_bytes:
        where = shown_path(search.cache_root)
        decoded = [f"{bytes_text(decoded_bytes)} of decoded images in {where}, for all searches"]
    say_under(
        "disk", f"up to {most} of checkpoints in {shown_path(search.folder)}{allowed}", *decoded
    )


def say_machine(course: Course) -> None:
    """Prints what each trial gets of the machine, and what it has less of than one would think."""
    plan, machine = course.plan, course.machine
    share = f", {plan.gpus_per_trial:g} GPU" if plan.num_gpus else ""
    notes = []
    if machine.cpus < machine.host_cpus:
        notes.append(
            f"this process may use {machine.cpus:g} of {machine.host_cpus} CPUs "
            "(affinity, cgroup quota)"
        )
    if machine.shm_free_bytes < OBJECT_STORE_BYTES:
        shm_free = bytes_text(machine.shm_free_bytes)
        notes.append(f"/dev/shm: {shm_free} free; what Ray would keep there goes to disk")
    say_under(
        "machine",
        f"{plan.slots} side by side, each with {plan.cpus_per_trial:g} CPU{share} and "
        f"{count_text(plan.threads, 'torch thread')}",
        *notes,
    )


def say_estimate(estimate: Estimate, basis: str) -> None:
    """Prints what a search is expected to take, and how that is known."""
    parts = {
        "measure": estimate.measure_s,
        "search": estimate.search_s,
        "confirm": estimate.confirm_s,
    }
    told = ", ".join(f"{name} {duration_text(each)}" for name, each in parts.items() if each)
    say_under("time", f"about {duration_text(estimate.seconds)}: {told}", basis)


def say_dashboard(dashboard: Dashboard) -> None:
    """Prints where Ray can be watched and how to get the login, never the login itself."""
    say_under(
        "dashboard",
        f"{dashboard.url}, on this machine alone",
        f"its token: cat {shown_path(dashboard.token_path)}",
        f"metrics for Prometheus: {dashboard.metrics_url}",
    )
