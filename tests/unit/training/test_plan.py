import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.laws import assert_covers_once
from tuner.data.augment import Augment
from tuner.data.keyed import stable_keys
from tuner.training.plan import Recipe, next_report, nominal_samples, plan_steps


def recipe(batch_size: int, *, epochs: int = 1, report_samples: int = 1, seed: int = 0) -> Recipe:
    return Recipe(
        batch_size=batch_size,
        epochs=epochs,
        report_samples=report_samples,
        peak_lr=0.1,
        schedule="cosine",
        warmup_fraction=0.1,
        label_smoothing=0.0,
        clip_norm=None,
        seed=seed,
        augment=Augment(crop="none", flip=False, rotate90=False, image_size_px=8),
    )


def keys(num_images: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    return stable_keys(f"{number}.jpg" for number in range(num_images))


def test_a_pass_takes_ceil_of_images_over_batch_steps() -> None:
    for num_images in range(1, 201):
        some_keys = keys(num_images)
        for batch_size in range(1, 201):
            steps = list(plan_steps(0, num_images, some_keys, recipe(batch_size)))
            assert len(steps) == -(-num_images // batch_size)
            assert all(len(step.positions) == batch_size for step in steps[:-1])
            assert_covers_once((step.positions for step in steps), num_images)


@given(st.integers(1, 60), st.integers(1, 70), st.integers(1, 4), st.integers(0, 300))
def test_a_plan_from_any_step_is_the_rest_of_the_whole_plan(
    num_images: int, batch_size: int, epochs: int, end: int
) -> None:
    some_keys, settings = keys(num_images), recipe(batch_size, epochs=epochs)
    end = min(end, epochs * num_images)
    whole = list(plan_steps(0, epochs * num_images, some_keys, settings))
    seen = 0
    for first, step in enumerate(whole):
        rest = list(plan_steps(seen, end, some_keys, settings))
        expected = whole[first : first + len(rest)]
        assert [step.epoch for step in rest] == [step.epoch for step in expected]
        for ours, theirs in zip(rest, expected, strict=True):
            np.testing.assert_array_equal(ours.positions, theirs.positions)
        assert (not rest) == (seen >= end)
        seen += len(step.positions)


def test_every_epoch_and_seed_has_its_own_order() -> None:
    orders = [
        [tuple(step.positions) for step in plan_steps(0, 100, keys(50), recipe(50, seed=seed))]
        for seed in (0, 1)
    ]
    assert len({order for pair in orders for order in pair}) == 4


@given(
    num_images=st.integers(1, 100),
    batch_size=st.integers(1, 130),
    epochs=st.integers(1, 5),
    report_samples=st.integers(1, 250),
)
def test_reports_fall_due_at_the_first_step_past_each_multiple_and_at_the_end(
    num_images: int, batch_size: int, epochs: int, report_samples: int
) -> None:
    settings = recipe(batch_size, epochs=epochs, report_samples=report_samples)
    total = epochs * num_images
    sizes = [len(step.positions) for step in plan_steps(0, total, keys(num_images), settings)]
    boundaries = np.cumsum(sizes).tolist()
    multiples = [*range(report_samples, total, report_samples), total]
    expected = {min(b for b in boundaries if b >= multiple): multiple for multiple in multiples}

    reports, seen = {}, 0
    while seen < total:
        due = next_report(seen, settings, num_images)
        seen = min(boundary for boundary in boundaries if boundary >= due)
        reports[seen] = nominal_samples(seen, settings, num_images)
    assert reports == expected


@given(st.integers(1, 100), st.integers(1, 5), st.integers(1, 250), st.data())
def test_a_stint_ends_where_its_last_report_falls_due(
    num_images: int, epochs: int, report_samples: int, data: st.DataObject
) -> None:
    settings = recipe(7, epochs=epochs, report_samples=report_samples)
    until = data.draw(st.integers(1, epochs * num_images))
    end = next_report(until - 1, settings, num_images)
    assert until <= end <= epochs * num_images
    assert end % report_samples == 0 or end == epochs * num_images
    assert end - until < report_samples
