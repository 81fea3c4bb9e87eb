"""Runs to report on: real answers of real solves, put into records as `fedpact run` would."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

import fedpact as fp
from fedpact import data, tasks
from fedpact.report.coefficients import Coefficient
from fedpact.report.record import Bounded, Measured, Record, Sent, Step
from fedpact.statistics import BoundPrice, ScoreCounts

#: Names that a page must show as they are.
HOSTILE = (
    '<script>alert("owner")</script>',
    "Krankenhaus 'St. Märien' & Söhne | *west* `x` [a](b)",
    "a-very-long-name-without-any-place-to-break-it-" * 4,
    "مستشفى",
    "</title></style><img src=x onerror=alert(1)>",
)


@cache
def solved(
    owners: int = 5, bound: float = 0.2, secure: bool = False, method: str = "auto", tol: float = 1e-4
) -> Record:
    """Neyman-Pearson classification at so many hospitals."""
    tables = {f"hospital {i}": own for i, own in enumerate(data.neyman_pearson(owners, 200, 6).values(), 1)}
    answer = fp.solve(tasks.neyman_pearson(tables, bound), method, tol=tol, secure_sum=secure)
    bounded, measured = [], []
    for (name, (X, y)), price in zip(tables.items(), answer.multipliers[1:], strict=True):
        positive = X[y == 1]
        loss = float(np.mean(np.logaddexp(0, -positive @ answer.w)))
        bounded.append(Bounded(name, "mean loss on class 1", loss, bound, float(price[0])))
        measured.append(Measured(name, {"rows": len(y), "recall": float(np.mean(positive @ answer.w > 0))}))
    return Record(
        title="Sepsis alarm, five hospitals" if owners == 5 else f"Sepsis alarm, {owners} hospitals",
        asked=f"Fewest false alarms, while the mean loss on septic patients stays at most {bound} at every hospital.",
        status=answer.status,
        reason=answer.reason,
        method=answer.method,
        engine="in-process",
        tol=answer.tol,
        stationarity=answer.certificate.stationarity,
        feasibility=answer.certificate.feasibility,
        objective=answer.objective,
        rounds=answer.rounds,
        convex=True,
        started="2026-03-02T09:15:00+00:00",
        seconds=1.7,
        bounded=tuple(bounded),
        measured=tuple(measured),
        history=tuple(
            Step(s.rounds, s.bytes, s.objective, s.stationarity, s.feasibility, s.violations)
            for s in answer.history.outer
        ),
        sent=tuple(
            Sent(name, t.messages_down, t.messages_up, t.bytes_down, t.bytes_up, t.fields)
            for name, t in answer.communication.owners.items()
        ),
        settings={
            "task": "neyman-pearson",
            "bound": bound,
            "solver": {"method": method, "tol": list(answer.tol), "seed": 0, "secure_sum": secure},
            "owners": {name: f"{name.replace(' ', '_')}.csv" for name in tables},
        },
        versions={"Python": "3.11.2", "fedpact": "0.1.0", "numpy": np.__version__},
        notes=tuple(answer.history.notes),
    )


def infeasible() -> Record:
    """Two owners who exclude each other."""
    low, high = (
        fp.Share(
            fp.functions.Quadratic(np.eye(1)),
            fp.Constraint(fp.functions.Affine([[sign]], [1.0]), fp.cones.Nonnegative(1)),
            name=name,
        )
        for sign, name in ((1.0, "low"), (-1.0, "high"))
    )
    answer = fp.solve(fp.FederatedProblem([low, high]))
    w = float(answer.w[0])
    found = [
        Bounded(name, "dose", sign * w, -1.0, float(price[0]))
        for name, sign, price in zip(("low", "high"), (1, -1), answer.multipliers[1:], strict=True)
    ]
    return replace(
        ended(answer.status, answer.reason),
        title="Two owners who exclude each other",
        stationarity=answer.certificate.stationarity,
        feasibility=answer.certificate.feasibility,
        objective=answer.objective,
        bounded=tuple(found),
        measured=(),
    )


def ended(status: str, reason: str = "the limit of 3 exchanges came before the tolerances") -> Record:
    """A run that was cut short, with its last point as the model."""
    cut = solved().history[1]
    bounded = tuple(replace(one, value=one.bound + cut.violations[one.owner]) for one in solved().bounded)
    return replace(
        solved(),
        status=status,
        reason=reason,
        stationarity=cut.stationarity,
        feasibility=cut.feasibility,
        objective=cut.objective,
        history=solved().history[:2],
        bounded=bounded,
    )


def with_server() -> Record:
    """A bound at the server too, met with room; not convex."""
    server = Bounded("server", "gap of mean loss between groups", 0.031, 0.1, 0.0)
    return replace(solved(), bounded=(server, *solved().bounded), convex=False)


def one_class() -> Record:
    """A model that calls all patients of one hospital septic."""
    first, *others = solved().measured
    return replace(solved(), measured=(replace(first, one_class="septic = yes"), *others))


def whole() -> Record:
    """A recall that every hospital keeps, with curves and a trade-off: everything that a page can show."""
    counts = [20, 90, 160, 150, 90, 50, 30, 20, 10, 5]
    points = [
        BoundPrice(allowance, "solved" if allowance < 1.5 else "max_rounds", 0.3 / allowance, rates)
        for allowance, rates in zip(
            (0.7, 1.0, 1.5),
            (
                {"accuracy": 0.7, "recall": 0.95, "specificity": 0.5},
                {"accuracy": 0.75, "recall": 0.9, "specificity": 0.6},
                {"accuracy": 0.8, "recall": 0.8, "specificity": 0.7},
            ),
            strict=True,
        )
    ]
    edges = tuple(float(edge) for edge in np.linspace(-4, 4, 9))
    middles = np.append(edges, 5.0) - 0.5
    curves = ScoreCounts(
        edges,
        tuple(map(float, counts)),
        tuple(map(float, counts[::-1])),
        tuple((1 / (1 + np.exp(-middles))).tolist()),
    )
    bounded = []
    for number, one in enumerate(solved().bounded):
        bounded.append(
            replace(one, what="recall of septic = yes", value=0.9 + 0.01 * number, bound=0.9, least=True, rows=100)
        )
    return replace(solved(), bounded=tuple(bounded), curves=curves, trade_off=tuple(points), convex=False)


#: Coefficients with and without what inference adds.
COEFFICIENTS = (
    Coefficient("age", 0.031, 0.01, 3.1, 0.0019, 0.0114, 0.0506, scale=12.0),
    Coefficient("lactate", 0.4, 0.25, 1.6, 0.11, -0.09, 0.89),
    Coefficient("a column with a name that is much too long for a chart", -0.7, 0.2, -3.5, 0.0005, -1.092, -0.308),
    Coefficient("intercept", -2.0),
)


def hostile() -> Record:
    """Every text that comes from outside is one that a careless page would run or break at."""
    one = solved()
    names = dict(zip((b.owner for b in one.bounded), HOSTILE, strict=True))
    bad = HOSTILE[0]
    return replace(
        one,
        title=f"{HOSTILE[4]} {HOSTILE[2]}",
        asked=bad,
        reason=bad,
        method=bad,
        engine=bad,
        started=bad,
        bounded=tuple(replace(b, owner=names[b.owner], what=f"loss {bad}") for b in one.bounded),
        measured=tuple(Measured(names[m.owner], {f"{bad} {k}": v for k, v in m.numbers.items()}) for m in one.measured),
        history=tuple(replace(s, violations={names[k]: v for k, v in s.violations.items()}) for s in one.history),
        sent=tuple(replace(s, owner=names[s.owner], fields=(*s.fields, f"{bad} (masked)")) for s in one.sent),
        settings={bad: {HOSTILE[4]: [bad]}},
        versions={bad: bad},
        notes=HOSTILE,
    )


if __name__ == "__main__":  # python tests/report/example_records.py FOLDER
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    solved(secure=True).save(folder)
