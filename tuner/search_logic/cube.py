"""A search space as a unit cube, with one coordinate for each parameter, and the way back."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from scipy.stats import qmc

from tuner.settings.space import Conditions, holds

Settings = dict[str, Any]
Floats = np.ndarray[Any, np.dtype[np.float64]]

# Where a parameter lies that is not searched beside the others.
ABSENT = math.nan
SAME_PLACE = 1e-9


@dataclass(frozen=True)
class Axis:
    """One parameter: its values, and those of others beside which alone it is searched.

    Whole numbers, steps and choices have a cell of the coordinate each, and lie in its middle;
    choices that are all numbers lie in their order.
    """

    distribution: BaseDistribution
    when: Conditions = ()

    @cached_property
    def num_values(self) -> float:
        """How many values there are; infinity for a range of numbers."""
        match self.distribution:
            case CategoricalDistribution(choices=choices):
                return len(choices)
            case IntDistribution(low=low, high=high, step=step):
                return (high - low) // step + 1
            case FloatDistribution(low=low, high=high, step=step):
                if low == high:
                    return 1
                return math.inf if step is None else round((high - low) / step) + 1
        raise AssertionError(self.distribution)

    @cached_property
    def choices(self) -> Sequence[Any] | None:
        """The choices in the order in which they lie; None for a range."""
        match self.distribution:
            case CategoricalDistribution(choices=choices):
                return sorted(choices) if _are_numbers(choices) else choices
        return None

    @cached_property
    def is_ordered(self) -> bool:
        """Whether values near to each other lie near to each other."""
        return self.choices is None or _are_numbers(self.choices)

    @cached_property
    def log_bounds(self) -> tuple[float, float] | None:
        """The logarithms of both ends, where the values lie evenly over orders of magnitude."""
        match self.distribution:
            case IntDistribution(low=low, high=high, log=True):
                return math.log(low - 0.5), math.log(high + 0.5)
            case FloatDistribution(low=low, high=high, log=True):
                return math.log(low), math.log(high)
        return None

    def value_at(self, coordinate: float) -> Any:
        """The value in whose cell a coordinate from 0 to 1 lies."""
        match self.distribution:
            case IntDistribution(low=low, high=high) if self.log_bounds:
                return min(max(round(math.exp(_between(*self.log_bounds, coordinate))), low), high)
            case FloatDistribution(low=low, high=high) if self.log_bounds:
                return min(max(math.exp(_between(*self.log_bounds, coordinate)), low), high)
            case FloatDistribution(low=low, high=high, step=None):
                return min(max(_between(low, high, coordinate), low), high)
        cell = min(int(coordinate * self.num_values), int(self.num_values) - 1)
        match self.distribution:
            case IntDistribution(low=low, step=step):
                return low + step * cell
            case FloatDistribution(low=low, high=high, step=float(step)):
                return min(low + step * cell, high)
        assert self.choices is not None, self.distribution
        return self.choices[cell]

    def coordinate_of(self, value: Any) -> float:
        """Where a value lies; at the nearer end for one outside of the range."""
        return float(self.coordinates_of([value])[0])

    def coordinates_of(self, values: Sequence[Any]) -> Floats:
        """Where each of the values lies."""
        if self.choices is not None:
            return (np.array([self._cell_of(each) for each in values]) + 0.5) / self.num_values
        numbers = np.array(values, float)
        match self.distribution:
            case _ if self.log_bounds:
                places = _share(*self.log_bounds, np.log(numbers))
            case IntDistribution(low=low, step=step) | FloatDistribution(low=low, step=float(step)):
                places = (np.rint((numbers - low) / step) + 0.5) / self.num_values
            case FloatDistribution(low=low, high=high):
                places = _share(low, high, numbers)
        return np.clip(places, 0.0, 1.0)

    def _cell_of(self, choice: Any) -> int:
        cell = self._cells.get((type(choice), choice))
        if cell is None:  # equal to a choice, but of another type
            same = self.distribution.to_external_repr(self.distribution.to_internal_repr(choice))
            cell = self._cells[type(same), same]
        return cell

    @cached_property
    def _cells(self) -> Mapping[tuple[type, Any], int]:
        return {(type(each), each): cell for cell, each in enumerate(self.choices or ())}

    def snapped_log(self, places: Floats) -> Floats:
        """Where the whole numbers at these places lie, evenly over orders of magnitude."""
        assert isinstance(self.distribution, IntDistribution)
        assert self.log_bounds is not None
        values = np.rint(np.exp(_between(*self.log_bounds, places)))
        inside = np.clip(values, self.distribution.low, self.distribution.high)
        return _share(*self.log_bounds, np.log(inside))

    def values(self, rng: np.random.Generator) -> Iterable[Any]:
        """Every value, one after another; of a range of numbers draws without an end."""
        match self.distribution:
            case CategoricalDistribution(choices=choices):
                return choices
            case IntDistribution(low=low, high=high, step=step):
                return range(low, high + 1, step)
        if math.isinf(self.num_values):  # a range of numbers is never used up
            return (self.value_at(rng.random()) for _ in count())
        cells = range(int(self.num_values))
        return (self.value_at((cell + 0.5) / self.num_values) for cell in cells)


class Cube:
    """The unit cube of some parameters.

    Attributes:
        axes: By key; one with a condition comes behind those that it stands on.
        groups: For each column of `features` the number of its parameter, of those that vary.
        has_order: Whether values near to each other lie near to each other, for each parameter.
        least_steps: What takes a coordinate to the next value, and 0 in a range of numbers.
    """

    def __init__(self, axes: Mapping[str, Axis]) -> None:
        self.axes = dict(axes)
        num_values = np.array([axis.num_values for axis in self.axes.values()], float)
        self._has_cells = np.isfinite(num_values)
        self._num_cells = np.where(self._has_cells, num_values, 1.0)
        varying = [i for i, axis in enumerate(self.axes.values()) if axis.num_values > 1]
        self.has_order = np.array([axis.is_ordered for axis in self.axes.values()], bool)
        self.least_steps = np.where(self._has_cells, 1 / self._num_cells, 0.0)
        widths = [1 if self.has_order[i] else int(self._num_cells[i]) for i in varying]
        self._varying = varying
        axes_by_place = list(enumerate(self.axes.values()))
        self._log_cells = [
            (i, axis)
            for i, axis in axes_by_place
            if axis.log_bounds and isinstance(axis.distribution, IntDistribution)
        ]
        places = {key: i for i, key in enumerate(self.axes)}
        self._conditions = [
            (i, places[parent], self.axes[parent].coordinate_of(value))
            for i, axis in axes_by_place
            for parent, value in axis.when
        ]
        self.groups = np.repeat(np.arange(len(varying)), widths)

    @property
    def num_settings(self) -> float:
        """At most how many settings there are; infinity with a range of numbers."""
        return math.prod(axis.num_values for axis in self.axes.values())

    def settings_at(self, point: Sequence[float] | Floats) -> Settings:
        """The settings at a point, of the parameters that are searched there."""
        drawn = zip(self.axes.items(), point, strict=True)
        settings: Settings = {}
        for (key, axis), coordinate in drawn:
            if holds(axis.when, settings):
                settings[key] = axis.value_at(float(coordinate))
        return settings

    def searched(self, values: Mapping[str, Any]) -> Settings:
        """Those of the values whose parameters are searched beside the others."""
        settings: Settings = {}
        for key, axis in self.axes.items():
            if holds(axis.when, settings):
                settings[key] = values[key]
        return settings

    def points_of(self, settings: Sequence[Mapping[str, Any]]) -> Floats:
        """Where settings lie, one a row."""
        points = np.full((len(settings), len(self.axes)), ABSENT)
        for i, (key, axis) in enumerate(self.axes.items()):
            rows = [row for row, each in enumerate(settings) if key in each]
            if rows:
                points[rows, i] = axis.coordinates_of([settings[row][key] for row in rows])
        return points

    def snapped(self, points: Floats) -> Floats:
        """Where the settings at these points lie, one a row."""
        cells = np.minimum(np.floor(points * self._num_cells), self._num_cells - 1)
        snapped = np.where(self._has_cells, (cells + 0.5) / self._num_cells, points)
        for i, axis in self._log_cells:
            snapped[:, i] = axis.snapped_log(points[:, i])
        for i, parent, there in self._conditions:
            is_there = np.abs(snapped[:, parent] - there) < SAME_PLACE
            snapped[:, i] = np.where(is_there, snapped[:, i], ABSENT)
        return snapped

    def features(self, points: Floats) -> Floats:
        """The points with columns of which each counts alike in a distance.

        Values without an order are each as far from every other one as both ends of a range. What
        is absent is half way.
        """
        columns = []
        for i in self._varying:
            places = points[:, i]
            if self.has_order[i]:
                columns.append(np.where(np.isnan(places), 0.5, places)[:, None])
            else:
                columns.append(_apart(places, int(self._num_cells[i])))
        return np.hstack(columns) if columns else np.empty((len(points), 0))

    def sobol_point(self, seed: int, index: int) -> Floats:
        """The point of that index in the scrambled Sobol sequence of the seed."""
        sobol = qmc.Sobol(len(self.axes), scramble=True, rng=seed)
        if index:  # scipy cannot skip nothing
            sobol.fast_forward(index)
        point: Floats = sobol.random(1)[0]
        return point

    def every_settings(self, rng: np.random.Generator) -> Iterator[Settings]:
        """Every settings of the space, one after another."""
        return _every(list(self.axes.items()), {}, rng)


def settings_key(settings: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    """What makes two settings the same."""
    return frozenset(settings.items())


def _every(
    axes: Sequence[tuple[str, Axis]], settings: Settings, rng: np.random.Generator
) -> Iterator[Settings]:
    if not axes:
        yield settings
        return
    key, axis = axes[0]
    if not holds(axis.when, settings):
        yield from _every(axes[1:], settings, rng)
        return
    for value in axis.values(rng):
        yield from _every(axes[1:], {**settings, key: value}, rng)


def _apart(places: Floats, num_values: int) -> Floats:
    """A column for each value, so that any two lie at a distance of 1."""
    cells = np.where(np.isnan(places), -1, np.floor(places * num_values))
    columns = (cells[:, None] == np.arange(num_values)).astype(float)
    columns[cells < 0] = 1 / num_values
    return columns / math.sqrt(2)


def _are_numbers(choices: Sequence[Any]) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in choices)


def _between(low: Any, high: Any, share: Any) -> Any:
    return low * (1 - share) + high * share  # high - low may be infinite


def _share(low: Any, high: Any, value: Any) -> Any:
    """How far between two numbers a third one lies; half way where they are too near to tell."""
    width = high / 2 - low / 2
    return (value / 2 - low / 2) / width if width > 0 else value * 0 + 0.5
