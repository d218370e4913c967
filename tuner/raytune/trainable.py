"""What runs inside a trial's process: one job after another, failures returned as results."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

# Called in the trial's process with a job and the search's context, both plain; yields one plain
# result per report. A result with a "reason" is the job's last. The name must be importable there.
Work = Callable[[Mapping[str, Any], Mapping[str, Any]], Iterator[Mapping[str, Any]]]
