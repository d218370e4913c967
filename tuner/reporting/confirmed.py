"""What the confirm runs say, in people's words."""

from collections.abc import Mapping
from typing import Any

from tuner.reporting.classes import is_uneven
from tuner.reporting.terminal import count_text, interval_text, metric_text
from tuner.study.confirmed import Confirmed, shrinkage
from tuner.study.record import Record

NO_INTERVAL = (
    "how far one more run falls from that is not known: it takes two runs of one configuration "
    "(search.confirm_seeds=2)"
)


def confirmed_text(metric: str, found: Confirmed) -> str:
    """Returns mean and spread over the seeds, for people."""
    spread = "" if found.spread is None else f" ± {metric_text(metric, found.spread, unit=False)}"
    seeds = count_text(len(found.scores), "fresh seed")
    return f"{metric_text(metric, found.mean)}{spread} over {seeds}"


def search_text(record: Record, found: Confirmed) -> str:
    """Returns the score in the search, and how far the mean over the seeds is from it.

    Of a trial that was not trained to its end there, how far it came instead.
    """
    metric, trial = record.metric, record.trials[found.trial_number]
    in_search, worse = record.best_score(trial.number), shrinkage(record, found)
    there = metric_text(metric, in_search)
    if worse is None:
        epoch = trial.reports[-1]["epoch"] if trial.reports else 0
        return f"{there} in the search, which left it at epoch {epoch:g}"
    if metric_text(metric, found.mean) == there:
        return f"{there} in the search"
    compared = "less" if (worse > 0) == (record.direction == "maximize") else "more"
    points = "" if metric.endswith("loss") else " points"
    difference = metric_text(metric, abs(worse), unit=False)
    return f"{difference}{points} {compared} than its {there} in the search"


def confirmed_lines(metric: str, found: Confirmed, not_told_apart: Confirmed | None) -> list[str]:
    """Returns what to expect of one more run, and what may be as good.

    Args:
        metric: Of the search.
        found: The configuration.
        not_told_apart: The next one, where the runs do not tell the two apart.
    """
    lines = [NO_INTERVAL]
    if found.interval:
        lines = [f"one more run of it, on another seed: {interval_text(metric, *found.interval)}"]
    if not_told_apart:
        lines.append(
            f"trial {not_told_apart.trial_number} cannot be told apart from it: "
            f"{confirmed_text(metric, not_told_apart)}"
        )
    return lines


def luck_text(*, is_confirmed: bool, has_test: bool) -> str:
    """Returns which luck is still in the score of the winner, and what would correct it."""
    if is_confirmed and has_test:
        return (
            "fresh seeds correct the luck of the seed, the test split that of the validation images"
        )
    if is_confirmed:
        return (
            "fresh seeds correct the luck of the seed; that of the validation images only a test "
            "split corrects (data.test_root)"
        )
    luckiest = "the best of many trials was also the luckiest"
    if has_test:
        return f"{luckiest}: its score on the test split is without that luck"
    return (
        f"{luckiest}: fresh seeds correct the luck of the seed (search.confirm_top=2), a test "
        "split that of the validation images (data.test_root)"
    )


def held_out_lines(test: Mapping[str, Any]) -> list[str]:
    """Returns the score on the test split, and how often it was looked at where that was not once.

    Args:
        test: As `best.yaml` has it.
    """
    images = count_text(test["num_evaluated"], "test image")
    lines = [f"no score: the model's outputs are no numbers for some of {images}"]
    if test["top1"] is not None:
        share = f"{metric_text('top1', test['top1'])} ({test['num_correct']:,} right)"
        balanced = f"; balanced top-1 {metric_text('balanced_top1', test['balanced_top1'])}"
        more = balanced if is_uneven(test) else ""
        lines = [f"top-1 {share} of {images}, which chose nothing{more}"]
    if test["looks"] > 1:
        lines.append(
            f"test images have been looked at {test['looks']} times in this search, as its winner "
            "or they themselves changed: the more often, the less they say"
        )
    return lines
