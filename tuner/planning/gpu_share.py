"""How many trials share a card: pure, what measures is given."""

from collections.abc import Callable

from tuner.planning.decoded import device_cache_bytes
from tuner.planning.resources import GPU_CONTEXT_BYTES
from tuner.planning.throughput import WITHIN

GPU_MEMORY_SHARE = 0.9  # of a card; the rest is for what nobody has counted
WORTH_DOUBLING = 0.05


def trials_per_gpu(
    measure_shared: Callable[[int], float | None],
    *,
    peak_memory_bytes: int,
    decoded_bytes: int,
    card_memory_bytes: int,
    most: int,
) -> int:
    """Returns the fewest trials on one card that train within `WITHIN` of the most images/s.

    1, 2, 4 and so on are tried, as long as memory and `most` allow and doubling is worth it.

    Args:
        measure_shared: Given how many share the card, their images per second together; None
            where one of them failed.
        peak_memory_bytes: Of one trial, as torch's allocator counts.
        decoded_bytes: Of the decoded images, that a trial keeps on the card where they fit.
        card_memory_bytes: Of the whole card.
        most: Trials that may share it, at least 1.
    """
    speeds: dict[int, float] = {}
    number, before = 1, 0.0
    while number <= most:
        each = peak_memory_bytes + GPU_CONTEXT_BYTES
        if decoded_bytes <= device_cache_bytes(1 / number, card_memory_bytes):
            each += decoded_bytes
        if number * each > GPU_MEMORY_SHARE * card_memory_bytes:
            break
        speed = measure_shared(number)
        if speed is None:
            break
        speeds[number] = speed
        if speed < (1 + WORTH_DOUBLING) * before:
            break
        number, before = 2 * number, speed
    enough = (1 - WITHIN) * max(speeds.values(), default=0.0)
    return next((number for number, speed in speeds.items() if speed >= enough), 1)
