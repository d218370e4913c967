import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tuner.training.models import build_model
from tuner.training.optim import build_optimizer, learning_rate

SCHEDULES = ("cosine", "constant", "step")


def lr_at(samples_seen: float, schedule: str, warmup_fraction: float = 0.1) -> float:
    return learning_rate(
        samples_seen,
        total_samples=1000,
        peak_lr=0.4,
        schedule=schedule,
        warmup_fraction=warmup_fraction,
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warm_up_is_linear_to_the_peak(schedule: str) -> None:
    assert [lr_at(seen, schedule) for seen in (0, 25, 50, 100)] == pytest.approx([0, 0.1, 0.2, 0.4])


def test_the_course_after_the_warm_up_is_the_schedule_s() -> None:
    assert [lr_at(seen, "cosine") for seen in (550, 1000)] == pytest.approx([0.2, 0])
    assert [lr_at(seen, "constant") for seen in (550, 1000)] == [0.4, 0.4]
    steps = [lr_at(seen, "step") for seen in (499, 500, 749, 750, 1000)]
    assert steps == pytest.approx([0.4, 0.04, 0.04, 0.004, 0.004])


@given(st.floats(0, 1000), st.sampled_from(SCHEDULES), st.floats(0, 1, exclude_max=True))
def test_the_rate_never_leaves_0_to_peak(seen: float, schedule: str, warmup: float) -> None:
    assert 0 <= lr_at(seen, schedule, warmup) <= 0.4


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("sgd", torch.optim.SGD, {"momentum": 0.8, "nesterov": True}),
        ("adam", torch.optim.Adam, {"betas": (0.8, 0.999)}),
        ("adamw", torch.optim.AdamW, {"betas": (0.8, 0.999)}),
    ],
)
def test_biases_and_norms_are_not_decayed(
    name: str, kind: type[torch.optim.Optimizer], options: dict[str, object]
) -> None:
    model = build_model("resnet8", 10, image_size_px=32, ghost_batch_size=32)
    optimizer = build_optimizer(model, name=name, lr=0.1, momentum=0.8, weight_decay=0.01)
    assert type(optimizer) is kind
    assert options.items() <= optimizer.defaults.items()
    decayed, spared = optimizer.param_groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.01, 0.0)
    weights = [m.weight for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert {id(p) for p in decayed["params"]} == {id(weight) for weight in weights}
    assert len(decayed["params"]) + len(spared["params"]) == len(list(model.parameters()))


def test_without_momentum_sgd_is_plain() -> None:
    optimizer = build_optimizer(nn.Linear(2, 2), name="sgd", lr=1, momentum=0, weight_decay=0)
    assert optimizer.defaults["nesterov"] is False
