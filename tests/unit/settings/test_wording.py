"""How values are told to a person."""

from pathlib import Path

import pytest

from tuner.settings.wording import shown_path


def test_a_path_is_shown_as_it_would_be_typed_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown_path(tmp_path / "results" / "tiny") == "results/tiny"
    assert shown_path(tmp_path / "my results") == "'my results'"
    assert shown_path(Path("/elsewhere/x")) == "/elsewhere/x"
