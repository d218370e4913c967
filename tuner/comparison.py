"""Whether a retraining came out as `best.yaml` records it, or as was to be expected of its seed."""

import json
from collections.abc import Mapping
from typing import Any

from tuner.assemble import TrainingRun
from tuner.handover import describe_code
from tuner.planning.environment import processor, versions
from tuner.reporting.another_seed import another_seed_text
from tuner.settings.config import Config
from tuner.settings.identity import binding_settings, binding_weights, describe_changes

SEED_KEY = "train.seed"


def compare(
    run: TrainingRun,
    recorded: Mapping[str, Any],
    config: Config,
    binding: Mapping[str, Any],
    *,
    threads: int,
) -> str:
    """Returns the line that says whether the recorded count of right images came out again.

    On another seed, where all else is as it was: whether the score is inside the stated interval.

    Args:
        run: That has ended.
        recorded: The content of `best.yaml`.
        config: Of the run.
        binding: What of that it must share with the recorded result, by dotted key.
        threads: The torch threads of the run.
    """
    before = Config.from_json(json.dumps(recorded["settings"]))
    was = binding_settings(before) | binding_weights([recorded.get("weights_sha256")])
    changes = describe_changes(was, binding)
    if recorded["data_fingerprint"] != run.data.fingerprint:
        changes.append("the images are others")
    is_another_seed = len(changes) == 1 and was[SEED_KEY] != binding[SEED_KEY]
    confirmed, best = recorded.get("confirmed") or {}, run.best
    if is_another_seed and best and confirmed.get("interval"):
        return another_seed_text(confirmed, best[run.metric], config.train.seed)
    if changes:
        return f"not compared with the recorded result: {', '.join(changes)}"
    result, history = recorded["result"], run.state.history
    at_recorded = [each for each in history if each["samples_seen"] == result["samples_seen"]]
    count = at_recorded[0]["num_correct"] if at_recorded else None
    told = f"of {result['num_evaluated']} right at epoch {result['epoch']:g}"
    if count == result["num_correct"]:
        return f"repeated: {count} {told}, as recorded"
    differing = what_differs(run, recorded, config, threads) or "though nothing known differs"
    return f"not repeated: {count} {told}, recorded {result['num_correct']}; {differing}"


def what_differs(
    run: TrainingRun, recorded: Mapping[str, Any], config: Config, threads: int
) -> str:
    """Returns what differs between this machine and the recorded one, if anything does."""
    now = {
        "threads": threads,
        "device": run.state.device.type,
        "processor": processor(),
        "micro_batch_size": run.state.micro_batch_size,
    }
    before = recorded["environment"] | recorded["result"]
    was = {key: before[key] for key in now if key in before}  # slices came with a later version
    now = {key: now[key] for key in was}
    code_was, code = recorded.get("model_code"), describe_code(config.model.name)
    differing = describe_changes(was | before["versions"], now | versions())
    if code_was and code and code["sha256"] != code_was["sha256"]:
        differing.append(f"{code['file']} was changed")
    return ", ".join(differing)
