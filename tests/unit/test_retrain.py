"""A retraining finds what its search has left."""

from pathlib import Path

import pytest

from tuner.retrain import find_cache


@pytest.mark.parametrize("left", ["generated-1/train", "decoded/0a.pixels"])
def test_the_cache_of_the_search_is_used_again(tmp_path: Path, left: str) -> None:
    best = tmp_path / "results" / "mine" / "best.yaml"
    (tmp_path / ".cache" / "others").mkdir(parents=True)
    assert find_cache(best) is None
    (tmp_path / "results" / ".cache" / left).mkdir(parents=True)
    assert find_cache(best) == tmp_path / "results" / ".cache"
