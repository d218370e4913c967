"""Lines of a running search, for people."""

from typing import Any

from tuner.reporting.terminal import trial_line

RESULT: dict[str, Any] = {
    "epoch": 3.0,
    "top1": 0.458,
    "top5": 0.88,
    "validation_loss": 1.5478,
    "images_per_s": 261.4,
    "reason": None,
    "message": "",
}
LINE = "trial   1  epoch   3.00  top-1  45.8 %  top-5  88.0 %  loss 1.548  261 images/s"


def test_a_report_is_one_line_of_percents() -> None:
    assert trial_line(1, RESULT) == LINE


def test_what_a_report_has_to_say_is_said() -> None:
    message = "000001000.pt: is damaged; the checkpoint before it is used"
    assert trial_line(1, RESULT | {"message": message}) == f"{LINE}  ({message})"


def test_a_failure_tells_why() -> None:
    failure = {"reason": "diverged", "message": "training loss is nan after 64 images"}
    assert trial_line(12, failure) == (
        "trial  12  failed: diverged training loss is nan after 64 images"
    )
