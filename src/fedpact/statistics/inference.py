"""Standard errors, intervals and tests of estimates, as a table that prints, saves and shows itself."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from fedpact.spreadsheet import harmless
from fedpact.types import Matrix, Vector


@dataclass(frozen=True)
class Estimate:
    """One estimated number.

    se: its standard error; zero for what a constraint fixes, NaN where it is not known
    z:  estimate / se; p: of the two-sided test that it is zero; low, high: ends of its interval. z and p are NaN where
        se is zero
    """

    name: str
    estimate: float
    se: float
    z: float
    p: float
    low: float
    high: float

    @classmethod
    def of(cls, name: str, estimate: float, se: float, level: float, degrees: float, bend: float = 0.0) -> Estimate:
        """degrees: of freedom of Student's t; infinite: the normal distribution. bend: see `_reach`"""
        if math.isnan(se):
            return cls(name, estimate, se, math.nan, math.nan, math.nan, math.nan)
        if se == 0:
            return cls(name, estimate, se, math.nan, math.nan, estimate, estimate)
        z = estimate / se
        p = 2 * float(stats.t.sf(abs(z), degrees))
        quantile = float(stats.t.ppf(0.5 + level / 2, degrees))
        side = math.copysign(se, estimate)
        low, high = sorted(estimate + side * _reach(far, bend) for far in (-quantile, quantile))
        return cls(name, estimate, se, z, p, low, high)


def _reach(quantile: float, bend: float) -> float:
    """How many standard errors an end of an interval lies from the estimate, where normal noise is bent.

    A price goes as one over the root of the room that its bound leaves above the least attainable value, and this room
    is what has normal noise. bend: one standard error of the room, in units of twice the room; 0: a straight line.
    Infinite where no room may be left.
    """
    left = 1 - 2 * bend * quantile
    if bend == 0 or left <= 0:
        return quantile if bend == 0 else math.inf
    return math.expm1(-0.5 * math.log(left)) / bend


#: Equations whose solution would have this relative error, from rounding alone, do not determine it.
SINGULAR = 1e-6
#: Passes of balancing; each halves the distance to one, in digits.
BALANCING = 30
#: Columns of a table of estimates.
COLUMNS = tuple(f.name for f in fields(Estimate))


@dataclass(frozen=True)
class Summary:
    """Estimates by name, with standard errors, tests and intervals.

    coefficients: of the model
    prices:       of the constraints that bind
    rates:        of the model's decisions, over the rows of all owners; by a bootstrap
    covariance:   where the standard errors come from: "sandwich", "hc0", "model", "clustered", "bootstrap"
    level:        of the intervals
    notes:        what the numbers do not cover, in words
    scale:        what the estimates are, in words, where they were transformed
    """

    coefficients: tuple[Estimate, ...]
    prices: tuple[Estimate, ...]
    covariance: str
    level: float
    notes: tuple[str, ...] = ()
    scale: str = ""
    rates: tuple[Estimate, ...] = ()

    def __getitem__(self, name: str) -> Estimate:
        """The estimate of this name. KeyError when there is none."""
        for one in (*self.coefficients, *self.prices, *self.rates):
            if one.name == name:
                return one
        raise KeyError(name)

    def ratios(self) -> Summary:
        """exp of the coefficients and of their intervals: odds ratios, rate ratios or hazard ratios. p stays."""
        found = []
        for one in self.coefficients:
            with np.errstate(over="ignore"):
                centre, low, high = (float(end) for end in np.exp([one.estimate, one.low, one.high]))
            found.append(replace(one, estimate=centre, se=centre * one.se, low=low, high=high))
        return replace(self, coefficients=tuple(found), prices=(), rates=(), scale="ratios (exp of the coefficients)")

    # ------------------------------------------------------------------------------------------------------- as a table

    def to_csv(self, path: str | Path | None = None) -> str:
        """The table as CSV text, written to `path` if it is given; `kind` is coefficient, price or rate."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["kind", *COLUMNS])
        for kind, one in self._rows():
            rows.writerow([kind, *map(harmless, asdict(one).values())])
        if path is not None:
            Path(path).write_text(text.getvalue(), encoding="utf-8")
        return text.getvalue()

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame, by name. Needs pandas."""
        import pandas

        rows = [{"kind": kind, **asdict(one)} for kind, one in self._rows()]
        return pandas.DataFrame(rows, columns=["kind", *COLUMNS]).set_index("name")

    def _rows(self) -> list[tuple[str, Estimate]]:
        found = [("coefficient", one) for one in self.coefficients]
        found += [("price", one) for one in self.prices]
        return found + [("rate", one) for one in self.rates]

    def __str__(self) -> str:
        percent = f"{100 * self.level:g} %"
        header = ["", "estimate", "se", "z", "p", f"low {percent}", f"high {percent}"]
        table = [header, *([one.name, *self._cells(one)] for one in self.coefficients)]
        for title, part in (("price of", self.prices), ("rate over all owners", self.rates)):
            if part:
                table += [[title, *[""] * (len(header) - 1)], *([one.name, *self._cells(one)] for one in part)]
        widths = [max(len(row[j]) for row in table) for j in range(len(header))]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in table]
        about = f"standard errors: {self.covariance}"
        if self.scale:
            about = f"{self.scale}; {about}"
        return "\n".join([*lines, about, *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        percent = f"{100 * self.level:g} %"
        names = ["", "estimate", "se", "z", "p", f"low {percent}", f"high {percent}"]
        rows = ["<tr>" + "".join(f"<th>{name}</th>" for name in names) + "</tr>"]
        for kind, one in self._rows():
            name = f"price of {one.name}" if kind == "price" else one.name
            cells = "".join(f"<td>{cell}</td>" for cell in self._cells(one))
            rows.append(f"<tr><th>{escape(name)}</th>{cells}</tr>")
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table>{''.join(rows)}</table><p>standard errors: {escape(self.covariance)}</p>{notes}"

    @staticmethod
    def _cells(one: Estimate) -> list[str]:
        p = "" if math.isnan(one.p) else f"{one.p:.3g}"
        z = "" if math.isnan(one.z) else f"{one.z:.3f}"
        return [f"{one.estimate:.5g}", f"{one.se:.3g}", z, p, f"{one.low:.5g}", f"{one.high:.5g}"]


def estimates(
    names: Sequence[str],
    values: Vector,
    covariance: Matrix,
    level: float,
    degrees: float,
    bends: Vector | None = None,
) -> tuple[Estimate, ...]:
    """Estimates with the standard errors that their covariance has on its diagonal. bends: see `Estimate.of`"""
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    bent = np.zeros(len(values)) if bends is None else bends
    each = zip(names, values.tolist(), errors.tolist(), bent.tolist(), strict=True)
    return tuple(Estimate.of(name, value, se, level, degrees, bend) for name, value, se, bend in each)


def estimates_of_draws(names: Sequence[str], values: Vector, draws: Matrix, level: float) -> tuple[Estimate, ...]:
    """Estimates with the deviation of their draws, one draw a row, as standard error, and percentiles as interval."""
    found = []
    for name, value, own in zip(names, values.tolist(), draws.T, strict=True):
        deviation = float(np.std(own, ddof=1)) if len(own) > 1 else math.nan
        one = Estimate.of(name, value, deviation, level, math.inf)
        if deviation > 0:
            low, high = np.quantile(own, [0.5 - level / 2, 0.5 + level / 2]).tolist()
            one = replace(one, low=low, high=high)
        found.append(one)
    return tuple(found)


def _balance(system: Matrix) -> Vector:
    """Scales of the unknowns with which the largest entry of every row is about one (Ruiz, 2001): no unit matters."""
    scale = np.ones(len(system))
    for _ in range(BALANCING):
        largest = np.abs(scale[:, None] * system * scale).max(axis=1, initial=0.0)
        scale /= np.sqrt(np.where(largest > 0, largest, 1.0))
    return scale


@dataclass(frozen=True, eq=False)
class Sandwich:
    """K^-1 S K^-T: the covariance of the solution of estimating equations with derivative K and covariance S."""

    system: Matrix
    inverse: Matrix
    spread: Matrix

    @property
    def covariance(self) -> Matrix:
        """Of the solution."""
        found = self.inverse @ self.spread @ self.inverse.T
        return np.asarray(0.5 * (found + found.T))

    def rounding(self, of: Matrix) -> Vector:
        """How much of the variances of `of` @ solution rounding alone may have made: a bound, entry by entry.

        V(K + dK, S + dS) - V = -K^-1 dK V - V dK' K^-T + K^-1 dS K^-T, with |dK| <= unit |K| and |dS| <= unit |S|.
        """
        moved = np.abs(of @ self.inverse)
        by_system = 2 * np.einsum("ij,jk,ki->i", moved, np.abs(self.system), np.abs(self.covariance @ of.T))
        by_spread = np.einsum("ij,jk,ik->i", moved, np.abs(self.spread), moved)
        return np.asarray(np.finfo(float).eps * (by_system + by_spread))


def sandwich(system: Matrix, spread: Matrix) -> Sandwich:
    """The covariance, whatever the units of the equations and of their unknowns.

    Raises numpy.linalg.LinAlgError when K is singular but for rounding: the equations do not determine their solution.
    What they determine badly only in some entries shows in `rounding`: two nearly collinear columns have large
    variances, and leave that of a third column as it is.
    """
    scale = _balance(system)
    balanced = scale[:, None] * system * scale
    if system.size and np.finfo(float).eps * float(np.linalg.cond(balanced)) > SINGULAR:
        raise np.linalg.LinAlgError("the equations do not determine their solution")
    return Sandwich(system, scale[:, None] * np.linalg.inv(balanced) * scale, spread)
