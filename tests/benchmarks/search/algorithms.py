"""Every search by its name, what it needs, and the version of the code that its results are of."""

import ast
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.benchmarks.search.simulate import Search, Setup

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CLOCK = ("simulate.py", "tasks.py", "lcbench.py", "deepobs.py")


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A search that can take part.

    Attributes:
        sources: Files, relative to this folder, on which its results depend; a folder stands for
            all its modules.
        packages: Distributions that it needs, and on whose versions its results depend.
        max_seeds: A costly one plays so many seeds at most.
    """

    name: str
    build: Callable[[Setup], Search]
    sources: Sequence[str]
    packages: Sequence[str] = ()
    max_seeds: int | None = None

    def missing(self) -> str | None:
        """The first package that it needs and that is not installed."""
        return next((each for each in self.packages if _version(each) is None), None)

    def code_version(self) -> str:
        """Changes with the code that its results depend on, not with comments or layout."""
        digest = hashlib.sha256()
        for name in (*CLOCK, *self.sources):
            path = HERE / name
            for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
                digest.update(file.name.encode())
                digest.update(ast.dump(ast.parse(file.read_bytes())).encode())
        digest.update(repr([(each, _version(each)) for each in self.packages]).encode())
        return digest.hexdigest()[:10]


def find_algorithm(name: str) -> Algorithm:
    """The algorithm of that name: a peer's, or this program's with any choice of its settings.

    Raises:
        ValueError: There is none.
    """
    if name.startswith("tuner-"):
        return _ours(name)
    if name not in PEERS:
        raise ValueError(f"{name}: no such algorithm; use tuner-SAMPLER or one of {list(PEERS)}")
    return PEERS[name]


def peer_versions() -> dict[str, str | None]:
    """Versions of all packages that peers need; None for one that is not installed."""
    packages = {package for each in PEERS.values() for package in each.packages}
    return {package: _version(package) for package in sorted(packages)}


def _ours(name: str) -> Algorithm:
    from tests.benchmarks.search.ours import TunerSearch, parse_choice

    choice = parse_choice(name)
    program = ("search_logic", "study")
    return Algorithm(
        name,
        lambda setup: TunerSearch(setup, choice),
        sources=(
            "ours.py",
            *(f"../../../tuner/{each}" for each in (*program, "settings/space.py")),
        ),
        packages=("optuna", "scipy"),
    )


def _simple(share: float | None) -> Callable[[Setup], Search]:
    def build(setup: Setup) -> Search:
        from tests.benchmarks.search.peers_simple import OneEpochTopK, RandomSearch

        return RandomSearch(setup) if share is None else OneEpochTopK(setup, share=share)

    return build


def _optuna(sampler: str, pruner: str) -> Callable[[Setup], Search]:
    def build(setup: Setup) -> Search:
        from tests.benchmarks.search.peers_optuna import OptunaSearch

        return OptunaSearch(setup, sampler=sampler, pruner=pruner)

    return build


def _ray(setup: Setup) -> Search:
    from tests.benchmarks.search.peers_ray import RaySearch

    return RaySearch(setup)


def _synetune(scheduler: str) -> Callable[[Setup], Search]:
    def build(setup: Setup) -> Search:
        from tests.benchmarks.search.peers_synetune import SyneTuneSearch

        return SyneTuneSearch(setup, scheduler=scheduler)

    return build


def _smac(setup: Setup) -> Search:
    from tests.benchmarks.search.peers_smac import SmacSearch

    return SmacSearch(setup)


def _neps(optimizer: str) -> Callable[[Setup], Search]:
    def build(setup: Setup) -> Search:
        from tests.benchmarks.search.peers_neps import NepsSearch

        return NepsSearch(setup, optimizer=optimizer)

    return build


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


OPTUNA = ("optuna",)
RAY = ("ray", "optuna")
SYNE_TUNE = ("syne-tune",)
NEPS = ("neural-pipeline-search",)
# Costly ones come last: the others' figures are there before.
PEERS: Mapping[str, Algorithm] = {
    each.name: each
    for each in (
        Algorithm("random", _simple(None), ["peers_simple.py"]),
        Algorithm("one-epoch-top10", _simple(0.10), ["peers_simple.py"]),
        Algorithm("one-epoch-top25", _simple(0.25), ["peers_simple.py"]),
        Algorithm("one-epoch-top50", _simple(0.50), ["peers_simple.py"]),
        Algorithm("ray", _ray, ["peers_ray.py"], RAY),
        Algorithm("optuna-tpe", _optuna("tpe", "none"), ["peers_optuna.py"], OPTUNA),
        Algorithm("synetune-asha", _synetune("asha"), ["peers_synetune.py"], SYNE_TUNE),
        Algorithm("synetune-bohb", _synetune("bohb"), ["peers_synetune.py"], SYNE_TUNE),
        Algorithm("neps-asha", _neps("asha"), ["peers_neps.py"], NEPS),
        Algorithm("neps-hyperband", _neps("hyperband"), ["peers_neps.py"], NEPS),
        Algorithm("optuna-tpe-hyperband", _optuna("tpe", "hyperband"), ["peers_optuna.py"], OPTUNA),
        Algorithm("optuna-tpe-median", _optuna("tpe", "median"), ["peers_optuna.py"], OPTUNA),
        Algorithm("optuna-tpe-sha", _optuna("tpe", "sha"), ["peers_optuna.py"], OPTUNA),
        Algorithm("smac", _smac, ["peers_smac.py"], ("smac", "scikit-learn"), max_seeds=3),
        Algorithm("optuna-gp", _optuna("gp", "none"), ["peers_optuna.py"], OPTUNA, max_seeds=2),
        Algorithm(
            "synetune-cqr",
            _synetune("cqr"),
            ["peers_synetune.py"],
            (*SYNE_TUNE, "xgboost", "huggingface-hub"),
            max_seeds=1,
        ),
    )
}
# Promotion with proposals at random stands beside the peers: it tells model and promotion apart.
EVERY = ("tuner-auto", "tuner-random", *PEERS)
