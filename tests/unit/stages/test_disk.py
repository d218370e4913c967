"""What the checkpoints of a search may take is what is there and what is free."""

import shutil
from pathlib import Path

import pytest

from tests.unit.stages.conftest import PLAN, OpenSearch
from tuner.errors import ResourceError
from tuner.planning.disk import DiskNeed
from tuner.stages.disk import look_at_disk, sizes_on_disk, trial_numbers
from tuner.stages.opening import Search
from tuner.stages.work import plan_work


def leave(search: Search, name: str, num_bytes: int) -> None:
    """Leave a file in the search's folder."""
    path = search.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(num_bytes))


def test_the_need_is_what_the_settings_ask_for(search_of: OpenSearch) -> None:
    search = search_of("search.keep_best=3", "search.confirm_seeds=3")
    work = plan_work(search, 100, 50, 2)
    assert look_at_disk(search, PLAN, work).need == DiskNeed(
        slots=2,
        trials=7,
        keep_best=3,
        confirm_runs=6,
        can_wait=True,
        checkpoint_bytes=work.checkpoint_bytes,
    )


@pytest.mark.parametrize("scheduler", ["asha_stopping", "none"])
def test_nothing_waits_where_nothing_is_promoted(search_of: OpenSearch, scheduler: str) -> None:
    search = search_of(f"search.scheduler={scheduler}")
    assert not look_at_disk(search, PLAN, plan_work(search, 100, 50, 2)).need.can_wait


def test_what_is_there_counts_and_a_larger_one_counts_for_all(search_of: OpenSearch) -> None:
    search = search_of("resources.disk_budget_gb=0.5")
    small = ("trials/0000/000000100.pt", "trials/12345/000000100.pt", "confirm/0001/000000007.pt")
    for name in small:
        leave(search, name, 10)
    leave(search, "trials/0001/000000100.pt", 5_000_000)
    for name in ("trials/0000/notes.txt", "trials/other/000000100.pt", "trials/0000/best.pt"):
        leave(search, name, 1_000_000)
    disk = look_at_disk(search, PLAN, plan_work(search, 100, 50, 2))
    assert (disk.budget.held_bytes, disk.need.checkpoint_bytes) == (5_000_030, 5_000_000)
    assert disk.need.held_runs == 1
    assert disk.budget.num_bytes == 500_000_000
    assert trial_numbers(search.folder, "search") == [0, 1, 12345]
    assert sizes_on_disk(search.folder, "confirm") == [10]
    disk.check()


def test_what_is_free_is_looked_up_before_the_folder_is_there(search_of: OpenSearch) -> None:
    search = search_of()
    disk = look_at_disk(search, PLAN, plan_work(search, 100, 50, 2))
    total = shutil.disk_usage(Path.cwd()).total
    assert not search.folder.exists()
    assert (disk.budget.folder, disk.budget.held_bytes) == (search.folder, 0)
    assert 0 < disk.budget.num_bytes < 0.9 * total


def test_a_budget_that_does_not_hold_the_trials_side_by_side_is_refused(
    search_of: OpenSearch,
) -> None:
    search = search_of("resources.disk_budget_gb=0.01", "search.confirm_top=0")
    leave(search, "trials/0001/000000100.pt", 1_234_567)
    disk = look_at_disk(search, PLAN, plan_work(search, 100, 50, 2))
    with pytest.raises(ResourceError) as caught:
        disk.check()
    assert caught.value.problems == (
        "resources.disk_budget_gb: 0.01 wanted, the search needs 0.013 (10 checkpoints of 1.23 MB, "
        "4 for each of 2 side by side); use at least that or a lower search.max_concurrent",
    )
