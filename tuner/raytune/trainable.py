"""What runs inside a trial's process: one job after another, failures returned as results."""

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from ray import tune

from tuner.errors import CheckpointError, StoppedError
from tuner.files import stopping_for_disk
from tuner.planning.resources import GPU_CONTEXT_BYTES, Plan
from tuner.raytune.metrics import shown_metrics
from tuner.raytune.stalls import begin_beats
from tuner.training.memory import fence_gpu_memory
from tuner.training.result import describe_error

# A generator function, importable in the trial's process: given a job and the search's context,
# both plain, it yields one plain result per report. A result with a "reason" is the job's last.
# It touches the file `job["beat_path"]` as long as it gets on.
Work = Callable[[Mapping[str, Any], Mapping[str, Any]], Generator[Mapping[str, Any], None, None]]

RESULT = "result"
CANNOT_WRITE = "cannot_write"  # no fault of the trial's: whatever comes next would fail in turn


def build_trainable(work: Work, context: Mapping[str, Any], plan: Plan, beats_folder: Path) -> Any:
    """Returns what Tune runs in each slot: `work` on one job, with the plan's share of the machine.

    The process is reused: after a stop it stays inside `tune.report` until the next job comes, then
    `work` is closed (GeneratorExit at its `yield`) before that job begins.
    """

    run_folder = beats_folder.parents[1]

    def train_job(config: dict[str, Any]) -> None:
        fence_gpu_memory(plan.gpus_per_trial, GPU_CONTEXT_BYTES)
        beat_path = beats_folder / tune.get_context().get_trial_id()
        job = config["job"] | {"beat_path": str(beat_path)}
        try:
            with stopping_for_disk(run_folder):
                begin_beats(beat_path)
                report_all(work, job, context)
        except (CheckpointError, StoppedError) as error:
            report({"reason": CANNOT_WRITE, "message": str(error)})
        except Exception as error:
            # Raised through Ray, it would cost the process: 4 to 9 s until its slot works again.
            report({"reason": "error", "message": describe_error(error)})

    share = {"CPU": plan.cpus_per_trial, "GPU": plan.gpus_per_trial}
    return tune.with_resources(train_job, tune.PlacementGroupFactory([share]))


def report_all(work: Work, job: Mapping[str, Any], context: Mapping[str, Any]) -> None:
    """Works off a job, and shows and reports its results."""
    with (
        closing(work(job, context)) as results,
        shown_metrics(job["trial_number"], context.get("stage", "search")) as show,
    ):
        for result in results:
            show(result)
            report(result)


def report(result: Mapping[str, Any]) -> None:
    """Hands one result to the driver and waits; in a list, because Tune flattens a dict."""
    tune.report({RESULT: [dict(result)]})
