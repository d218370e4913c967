"""Decoded images are kept where they crowd out nothing."""

import pytest

from tuner.planning.decoded import device_cache_bytes, why_not_decoded


@pytest.mark.parametrize("num_bytes", [0, 10**9, 5 * 10**9])
def test_up_to_half_of_disk_and_memory_is_taken(num_bytes: int) -> None:
    assert why_not_decoded(num_bytes, free_bytes=10**10, memory_bytes=10**10) is None


def test_a_refusal_tells_what_is_short_and_what_to_do() -> None:
    assert why_not_decoded(6 * 10**9, free_bytes=10**10, memory_bytes=10**11) == (
        "they take 6.0 GB, above half of the 10.0 GB that checkpoints leave free on its disk "
        "(data.cache=decoded or device keeps them all the same)"
    )
    assert why_not_decoded(6 * 10**9, free_bytes=10**11, memory_bytes=10**10) == (
        "they take 6.0 GB, above half of the 10.0 GB of memory "
        "(data.cache=decoded or device keeps them all the same)"
    )


def test_a_gpu_keeps_a_quarter_of_the_trials_share() -> None:
    assert device_cache_bytes(0.5, 80 * 10**9) == 10 * 10**9
    assert device_cache_bytes(0.0, 0) == 0
