"""What a search is: its space, its name, its folder. Imports nothing heavy."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from tuner.cli import default_run_name
from tuner.errors import StudyError
from tuner.search_logic.rungs import rung_lengths
from tuner.settings.config import Config, flatten
from tuner.settings.identity import binding_weights, weights_sha256
from tuner.settings.load import Space, load_space
from tuner.settings.points import is_list, load_points
from tuner.settings.space import edge_values


@dataclass(frozen=True, slots=True)
class Search:
    """One search: what is searched, in which folder.

    Attributes:
        name: The name of its folder and of its study.
        cache_root: Where generated and decoded images and measured speeds are kept for others.
    """

    space: Space
    name: str
    folder: Path
    cache_root: Path

    @property
    def config(self) -> Config:
        """The settings of the space, which a trial's own go over."""
        return self.space.config

    def possible_values(self, key: str) -> tuple[Any, ...]:
        """The bounds or choices of a searched key, or the one value of a fixed one."""
        searched = self.space.parameters.get(key)
        return edge_values(searched) if searched else (flatten(self.config)[key],)

    @property
    def may_mine(self) -> bool:
        """Whether a trial may come back to hard images."""
        return max(self.possible_values("mining.ratio")) > 0

    def with_settings(self, overrides: dict[str, Any]) -> "Search":
        """The same search, some settings of its space fixed."""
        return replace(
            self, space=replace(self.space, config=self.config.with_overrides(overrides))
        )

    def rungs(self, num_images: int) -> tuple[int, ...]:
        """The lengths, in images, at which trials are compared."""
        config = self.config
        reports_to_grace = round(config.grace_epochs / config.report_epochs)
        return rung_lengths(
            reports_to_grace * config.report_samples(num_images),  # a report falls due at each rung
            config.train.epochs * num_images,
            config.search.reduction_factor,
        )


def open_search(
    space_name: str, overrides: list[str], *, name: str | None, output: str, resume: str
) -> Search:
    """The search that the arguments mean, its settings checked.

    Raises:
        SettingsError: One line for each mistake, in a list of points too.
        StudyError: `resume` is "must", and there is nothing to go on with; or `output` is closed.
    """
    space = load_space(space_name, overrides)
    name = name or default_run_name(space, overrides)
    root = Path(output).absolute()
    is_begun = has_begun(root / name)
    if is_begun and resume == "never":
        name = next(free for free in fresh_names(name) if not has_begun(root / free))
    if not is_begun and resume == "must":
        raise StudyError(
            f"resume: there is no search to go on with ({root / name}); use resume=auto"
        )
    cache_root = Path(space.config.data.cache_root or root / ".cache")
    search = Search(space, name, root / name, cache_root)
    weights_identity(search)  # a file that is not there is told before torch is imported
    points = Path(space.config.search.points or "")
    if is_list(points) and not has_begun(search.folder):
        load_points(points, space.parameters, flatten(space.config))
    return search


def weights_identity(search: Search) -> dict[str, Any]:
    """What binds a search to the content of its files of first weights, by dotted key.

    Raises:
        SettingsError: One of them cannot be read.
    """
    paths = search.possible_values("model.weights")
    return binding_weights([weights_sha256(path) for path in paths])


def has_begun(folder: Path) -> bool:
    """Whether a search was begun in `folder`; a refused start does not count.

    Raises:
        StudyError: Nobody can tell: this user may not look into the folder, say.
    """
    try:
        (folder / "study.journal").stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StudyError(
            f"output: {folder.parent} cannot be used ({error.strerror}); use another output=…"
        ) from error
    return True


def fresh_names(name: str) -> Iterator[str]:
    """The name, then the name with -2, -3 … behind it."""
    yield name
    yield from (f"{name}-{number}" for number in count(2))
