"""The table of the measure stage, for people."""

from collections.abc import Mapping, Sequence

from tuner.reporting.terminal import bytes_text


def speed_table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Returns the rows of `throughput.csv` as aligned lines under a head, the fastest first.

    Args:
        rows: Texts by column, as they stand in the file; one at least.
    """
    keys = list(rows[0])[: list(rows[0]).index("state")]
    ordered = sorted(rows, key=lambda row: -float(row["images_per_s"] or 0))
    cells = [[*(key.split(".")[-1] for key in keys), "images/s", "waits", "memory", ""]]
    cells += [[*(row[key] for key in keys), *_figures(row), _remark(row)] for row in ordered]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) for cell, width in zip(line[:-1], widths[:-1], strict=True)
        ).rstrip()
        + f"  {line[-1]}".rstrip()
        for line in cells
    ]


def _figures(row: Mapping[str, str]) -> tuple[str, str, str]:
    if not row["images_per_s"]:
        return "", "", ""
    return (
        f"{float(row['images_per_s']):.0f}",
        f"{float(row['data_wait_share']):.0%}",
        bytes_text(int(row["peak_memory_bytes"])),
    )


def _remark(row: Mapping[str, str]) -> str:
    if row["is_pinned"] == "True":
        return "pinned"
    if row["state"] == "measured":
        return ""
    return ": ".join(filter(None, (row["state"], row["reason"], row["message"])))
