"""`python -m tuner.report`: the HTML report of a run, which comes with a later version."""

import sys

from pydantic import Field

from tuner import cli
from tuner.errors import SettingsError


class ReportKeys(cli.Keys):
    """Rebuilds the report of a run; comes with a later version."""

    run: str = Field(description="folder of the run")
    watch: bool = Field(default=False, description="follow a running search")


def main(keys: ReportKeys, overrides: list[str]) -> None:
    """Refuses.

    Raises:
        SettingsError: Always.
    """
    raise SettingsError(
        "tuner.report: not available yet; leaderboard.csv, confirm.csv and summary.json are in "
        f"{keys.run}, and optuna-dashboard shows its study.journal"
    )


if __name__ == "__main__":
    sys.exit(cli.run("report", ReportKeys, main))
