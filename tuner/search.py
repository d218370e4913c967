"""`python -m tuner.search`: finds the best training settings, and goes on where it stopped.

python -m tuner.search space=imagenet_small
"""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from tuner import cli
from tuner.errors import CheckpointError, RunError, StudyError
from tuner.files import hold_folder, write_text
from tuner.settings.config import flatten
from tuner.settings.identity import binding_settings
from tuner.settings.load import Space, load_space
from tuner.settings.space import edge_values, spec_to_plain
from tuner.settings.text import yaml_text

if TYPE_CHECKING:
    from tuner.data.prepare import PreparedData
    from tuner.planning.resources import Plan
    from tuner.search_logic.jobs import Jobs
    from tuner.study.record import Record


class SearchKeys(cli.Keys):
    """Searches a space for the best training settings; the same command again goes on."""

    space: str = Field(description="name in search_spaces/, or the path of a .yaml file")
    name: cli.RunName | None = Field(
        default=None, description="folder of the search under output; null is the space's name"
    )
    output: str = Field(default="results", description="folder that searches are written under")
    resume: Literal["auto", "never", "must"] = Field(
        default="auto",
        description="go on with a search of that name; never begins another beside it",
    )


@dataclass(frozen=True, slots=True)
class Search:
    """One search: what is searched, in which folder."""

    space: Space
    name: str
    folder: Path
    cache_root: Path


def main(keys: SearchKeys, overrides: list[str]) -> None:
    """Prepares the images, searches them for the best settings, and hands the winner over."""
    search = open_search(keys, overrides)
    with hold_folder(search.folder), telling_how_to_go_on(search):
        plan = plan_machine(search)
        data = prepare(search, plan)
        record = open_record(search, data)
        run(search, plan, data, open_jobs(search, record, len(data.train)))
        hand_over(search, data, record)


def open_search(keys: SearchKeys, overrides: list[str]) -> Search:
    """Returns the search that the arguments mean, its settings checked.

    Raises:
        SettingsError: One line for each mistake.
        StudyError: `resume=must`, and there is nothing to go on with.
    """
    space = load_space(keys.space, overrides)
    name = keys.name or cli.default_run_name(space, overrides)
    output = Path(keys.output).absolute()
    if keys.resume == "never":
        name = next(free for free in fresh_names(name) if not has_begun(output / free))
    if keys.resume == "must" and not has_begun(output / name):
        raise StudyError(
            f"resume: there is no search to go on with ({output / name}); use resume=auto"
        )
    return Search(space, name, output / name, output / ".cache")


def has_begun(folder: Path) -> bool:
    """Says whether a search was begun in `folder`; a refused start does not count."""
    return (folder / "study.journal").exists()


def fresh_names(name: str) -> Iterator[str]:
    """Yields the name, then the name with -2, -3 … behind it."""
    yield name
    yield from (f"{name}-{number}" for number in count(2))


def plan_machine(search: Search) -> "Plan":
    """Returns how trials share this machine, before anything is started.

    Raises:
        SettingsError: There is no such model.
        ResourceError: The machine cannot give what is asked.
    """
    from tuner.planning.machine import look
    from tuner.planning.resources import plan_resources
    from tuner.raytune.engine import check_address
    from tuner.reporting.terminal import say

    config = search.space.config
    check_address()
    plan = plan_resources(
        look(),
        cpus_per_trial=config.resources.cpus_per_trial,
        gpus_per_trial=config.resources.gpus_per_trial,
        max_concurrent=config.search.max_concurrent,
    )
    check_models(search.space)
    for note in search.space.notes:
        say(note)
    if search.space.throughput:
        say(f"not searched yet, taken as set: {', '.join(search.space.throughput)}")
    say(f"trials side by side: {plan.slots}, threads of each: {plan.threads}")
    return plan


def check_models(space: Space) -> None:
    """Asks for every model that a trial may get.

    Raises:
        SettingsError: There is no such model, or it cannot take such images.
    """
    from tuner.assemble import check_model

    for name in possible_values(space, "model.name"):
        check_model(space.config.with_overrides({"model.name": name}))


def possible_values(space: Space, key: str) -> tuple[Any, ...]:
    """Returns the bounds or choices of a searched key, or the one value of a fixed one."""
    searched = space.parameters.get(key)
    return edge_values(searched) if searched else (flatten(space.config)[key],)


def prepare(search: Search, plan: "Plan") -> "PreparedData":
    """Stage prepare: every image opened once, verdicts in `dataset.json`."""
    from tuner.assemble import prepare_images, short_step_notes
    from tuner.reporting.terminal import counting, say

    with counting("preparing images") as progress:
        data = prepare_images(
            search.space.config,
            search.cache_root,
            report_path=search.folder / "dataset.json",
            num_processes=plan.slots * plan.threads,
            progress=progress,
        )
    largest = max(possible_values(search.space, "train.batch_size"))
    for note in (*data.notes, *short_step_notes(largest, len(data.train))):
        say(note)
    say(
        f"{len(data.train)} training and {len(data.validation)} validation images "
        f"of {len(data.train.classes)} classes"
    )
    return data


def open_record(search: Search, data: "PreparedData") -> "Record":
    """Returns the durable record of the search, begun or gone on with.

    Raises:
        StudyError: It was made for another space, metric, length or other images.
    """
    from tuner.data.prepare import write_dataset_record
    from tuner.study.record import Record

    space = search.space
    record = Record.open(
        search.folder,
        name=search.name,
        metric=space.config.search.metric,
        direction=space.config.search.direction,
        parameters=space.parameters,
        data_fingerprint=data.fingerprint,
        settings_plain={
            key: value
            for key, value in binding_settings(space.config).items()
            if key not in space.parameters and key != "search.metric"
        },
    )
    write_dataset_record(search.folder / "dataset.json", data)  # trials read it
    sections = {
        section: {key: spec_to_plain(spec) for key, spec in specs.items()}
        for section, specs in (("parameters", space.parameters), ("throughput", space.throughput))
        if specs
    }
    write_text(search.folder / "config.yaml", yaml_text(space.config.model_dump() | sections))
    return record


def rungs_of(search: Search, num_images: int) -> tuple[int, ...]:
    """Returns the lengths, in images, at which trials are compared."""
    from tuner.assemble import report_samples
    from tuner.search_logic.rungs import rung_lengths

    config = search.space.config
    reports_to_grace = round(config.grace_epochs / config.report_epochs)
    return rung_lengths(
        reports_to_grace * report_samples(config, num_images),  # a report falls due at each rung
        config.train.epochs * num_images,
        config.search.reduction_factor,
    )


def open_jobs(search: Search, record: "Record", num_images: int) -> "Jobs":
    """Returns what hands out the jobs, at where the record stands."""
    from tuner.search_logic.jobs import Jobs

    asked = search.space.config.search
    return Jobs(
        record,
        search.space.parameters,
        trials=asked.trials,
        sampler=asked.sampler,
        scheduler=asked.scheduler,
        rungs=rungs_of(search, num_images),
        reduction_factor=asked.reduction_factor,
        max_failures=asked.max_failures,
        seed=asked.seed,
    )


def run(search: Search, plan: "Plan", data: "PreparedData", jobs: "Jobs") -> None:
    """Stage search: every slot busy until no job is left; a line for each report."""
    from tuner.assemble import images_root
    from tuner.raytune.engine import ray_session, run_jobs
    from tuner.reporting.terminal import say, trial_line
    from tuner.trial import TrialContext, run_job

    if jobs.is_finished:
        return
    config = search.space.config
    context = TrialContext(
        run_folder=str(search.folder),
        images_root=str(images_root(config, search.cache_root)),
        config_json=config.to_json(),
        threads=plan.threads,
    )
    with ray_session(plan) as session:
        run_jobs(
            session,
            jobs,
            run_job,
            asdict(context),
            max_restarts=config.search.max_restarts,
            on_result=lambda job, result: say(trial_line(job.trial_number, result)),
        )
    if jobs.exhausted:
        say("every combination of the space has been tried")


def hand_over(search: Search, data: "PreparedData", record: "Record") -> None:
    """Stage hand over: `leaderboard.csv`, `best.yaml` and the model folder `best/`.

    Raises:
        RunError: No trial has a score.
        CheckpointError: The winner's weights cannot be read; `best.yaml` is there all the same.
    """
    from tuner.handover import (
        describe_winner,
        is_handed_over,
        write_best_yaml,
        write_model_folder,
    )
    from tuner.reporting.leaderboard import best_trial, leaderboard_rows, write_leaderboard
    from tuner.reporting.terminal import say, score_text
    from tuner.training.checkpoint import CheckpointFolder
    from tuner.trial import trial_folder

    space, rungs = search.space, rungs_of(search, len(data.train))
    rows = leaderboard_rows(record, space.config, rungs, list(space.parameters))
    write_leaderboard(search.folder / "leaderboard.csv", rows)
    trial = best_trial(record)
    if trial is None:
        raise RunError(f"no trial has a score: {why_none(record)}; mend it, then use resume=never")
    report = record.best_report(trial.number)
    assert report is not None
    config = space.config.with_overrides(trial.settings)
    winner = describe_winner(
        config,
        report,
        classes=data.train.classes,
        data_fingerprint=data.fingerprint,
        threads=report["threads"],
        device=report["device"],
        trial_number=trial.number,
    )
    best_yaml = search.folder / "best.yaml"
    again = f"python -m tuner.retrain config={shown_path(best_yaml)}"
    if not is_handed_over(search.folder, winner):
        checkpoints = CheckpointFolder(trial_folder(search.folder, trial.number), say)
        try:
            weights = checkpoints.load(report["samples_seen"])["model"]
        except CheckpointError as error:
            write_best_yaml(best_yaml, winner)
            raise CheckpointError(f"{error}; train it again: {again}") from error
        write_model_folder(search.folder / "best", weights, winner, config)
        write_best_yaml(best_yaml, winner)
    say(f"best: trial {trial.number} at epoch {report['epoch']:g}, {score_text(report)}")
    for key, value in trial.settings.items():
        say(f"  {key} = {value}")
    say(f"train it again: {again}")


def why_none(record: "Record") -> str:
    """Returns why trials ended, every reason once, with what the first of its trials said."""
    messages = {trial.reason: trial.message for trial in reversed(record.trials) if trial.reason}
    return "; ".join(f"{reason} ({messages[reason]})" for reason in sorted(messages))


def shown_path(path: Path) -> str:
    """Returns a path as a person would type it here."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


@contextmanager
def telling_how_to_go_on(search: Search) -> Iterator[None]:
    """Says, when the search is interrupted, with which command it goes on."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        given = [each for each in sys.argv[1:] if not each.startswith(("name=", "resume="))]
        command = ["python", "-m", "tuner.search", *given, f"name={search.name}"]
        sys.stderr.write(f"stopped, nothing is lost; go on with: {shlex.join(command)}\n")
        raise


if __name__ == "__main__":
    sys.exit(cli.run("search", SearchKeys, main))
