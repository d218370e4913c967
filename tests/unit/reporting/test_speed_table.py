"""The table of the measure stage reads as it should."""

import csv

from tuner.planning.throughput import choose, throughput_csv
from tuner.reporting.speed_table import speed_table


def test_the_fastest_come_first_and_the_pinned_is_marked() -> None:
    speeds = {0: 100.0, 1: 200.0}

    def measure(settings: dict[str, int], seconds: float) -> list[dict[str, object]]:
        if settings["loader.num_workers"] == 2:
            return [{"reason": "killed", "message": "gone"}]
        number = speeds[settings["loader.num_workers"]]
        return [
            {
                "num_images": number,
                "seconds": 1.0,
                "data_wait_share": 0.125,
                "peak_memory_bytes": 2_000_000_000,
                "micro_batch_size": 8,
            }
        ]

    choice = choose(
        [{"loader.num_workers": number} for number in (0, 1, 2)],
        measure,  # type: ignore[arg-type]
        budget_s=10.0,
        clock=lambda: 0.0,
    )
    assert speed_table(list(csv.DictReader(throughput_csv(choice).splitlines()))) == [
        "num_workers  images/s  waits  memory",
        "          1       200    12%  2.0 GB  pinned",
        "          0       100    12%  2.0 GB",
        "          2  failed: killed: gone",
    ]
