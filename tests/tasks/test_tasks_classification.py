from __future__ import annotations

from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from raising import raises_code

import fedpact.data as data
from fedpact.cones import Nonnegative
from fedpact.problem import FederatedProblem, certify
from fedpact.prox import SquaredL2
from fedpact.tasks import (
    group_fairness,
    group_fairness_server,
    group_fairness_share,
    neyman_pearson,
    neyman_pearson_share,
)
from fedpact_experiments import datasets

rng = np.random.default_rng(7)


def table(rows: int = 12, d: int = 3) -> tuple[Any, Any, Any]:
    return rng.standard_normal((rows, d)), np.arange(rows) % 2, np.arange(rows) // 2 % 2


def loss(X: Any, y: Any, w: Any) -> float:
    """The formula of He24 (31), written out."""
    return float(np.mean(-y * (X @ w) + np.log1p(np.exp(X @ w))))


def objective(problem: FederatedProblem, w: Any) -> float:
    return sum(share.objective.value(w) for share in problem.shares if share.objective)


def test_neyman_pearson_is_the_formula() -> None:
    owners = {"a": table(12)[:2], "b": table(20)[:2]}
    regularizer = SquaredL2(0.1)
    problem = neyman_pearson(owners, bound={"b": 0.3, "a": 0.1}, regularizer=regularizer)
    assert problem.names == ("a", "b")
    assert problem.regularizer is regularizer
    w = rng.standard_normal(3)
    class_0 = [loss(X[y == 0], 0, w) for X, y in owners.values()]
    assert objective(problem, w) == pytest.approx(np.mean(class_0))
    for share, bound, (X, y) in zip(problem.shares, (0.1, 0.3), owners.values(), strict=True):
        assert share.constraint is not None
        assert isinstance(share.constraint.cone, Nonnegative)
        assert share.constraint.function.value(w) == pytest.approx([loss(X[y == 1], 1, w) - bound])
    assert problem.server.constraint is None


def test_a_share_made_at_the_owner_is_the_same() -> None:
    X, y, group = table()
    w = rng.standard_normal(3)
    pairs = [
        (neyman_pearson_share(X, y, bound=0.2, owners=1, name="a"), neyman_pearson({"a": (X, y)}).shares[0]),
        (
            group_fairness_share(X, y, group, max_gap=0.1, owners=1, name="a"),
            group_fairness({"a": (X, y, group)}).shares[0],
        ),
        (
            group_fairness_server(X, y, group, max_gap=0.1),
            group_fairness({"a": (X, y, group)}, server=(X, y, group)).server,
        ),
    ]
    for alone, inside in pairs:
        assert alone.name == inside.name
        assert (alone.objective is None) == (inside.objective is None)
        if alone.objective is not None and inside.objective is not None:
            assert alone.objective.value(w) == inside.objective.value(w)
        assert alone.constraint is not None
        assert inside.constraint is not None
        np.testing.assert_array_equal(alone.constraint.function.value(w), inside.constraint.function.value(w))


def test_group_fairness_is_the_formula() -> None:
    owners = {"a": table(12), "b": table(20)}
    server = table(16)
    problem = group_fairness(owners, server, max_gap=0.05)
    w = rng.standard_normal(3)
    assert objective(problem, w) == pytest.approx(np.mean([loss(X, y, w) for X, y, _ in owners.values()]))
    for share, (X, y, group) in zip((problem.server, *problem.shares), (server, *owners.values()), strict=True):
        gap = loss(X[group == 1], y[group == 1], w) - loss(X[group == 0], y[group == 0], w)
        assert share.constraint is not None
        assert isinstance(share.constraint.cone, Nonnegative)
        assert share.constraint.function.value(w) == pytest.approx([gap - 0.05, -gap - 0.05])
    assert problem.server.objective is None


def test_without_server_rows_the_server_has_no_constraint() -> None:
    assert group_fairness({"a": table()}).server.constraint is None


@pytest.mark.parametrize(
    # The optima that the docstrings of the loaders state.
    ("loader", "options", "expected"),
    [
        (datasets.breast_cancer_wisconsin, {}, 0.039),
        (datasets.monks1, {"encoding": "onehot"}, 1.10),
        (datasets.monks1, {"encoding": "codes"}, 1.39),
    ],
)
def test_pooled_optimum_by_a_conic_solver(data_folder: Path, loader: Any, options: Any, expected: float) -> None:
    rows = loader(data_folder, **options)
    X, y = data.with_intercept(data.standardize(rows.X)), rows.y
    w = cp.Variable(X.shape[1])
    class_0 = cp.sum(cp.logistic(X[y == 0] @ w)) / np.sum(y == 0)
    bound = cp.sum(cp.logistic(-X[y == 1] @ w)) / np.sum(y == 1) <= 0.2
    program = cp.Problem(cp.Minimize(class_0), [bound])
    program.solve(solver="CLARABEL")
    problem = neyman_pearson({"all": (X, y)})
    assert program.value == pytest.approx(expected, abs=5e-3)
    assert objective(problem, w.value) == pytest.approx(program.value, abs=1e-6)
    certificate = certify(problem, w.value, [np.zeros(0), np.array([float(bound.dual_value)])])
    assert max(certificate.stationarity, certificate.feasibility) < 1e-4


def test_both_groups_are_everywhere_in_adult_b(data_folder: Path) -> None:
    both = datasets.adult_b(data_folder)
    clients, server = both.clients, both.server
    assert clients.group is not None
    parts = [clients.select(fold) for fold in data.stratified(clients.y, 20)]
    owners = {f"bank {i}": (part.X, part.y, part.group) for i, part in enumerate(parts)}
    problem = group_fairness(owners, (server.X, server.y, server.group))  # type: ignore[arg-type]
    assert problem.dim == 38
    assert objective(problem, np.zeros(38)) == pytest.approx(np.log(2))


def spoiled(X: Any, rows: list[int], column: int, value: float) -> Any:
    copy = X.copy()
    copy[rows, column] = value
    return copy


X, Y, G = table()


@pytest.mark.parametrize(
    ("owners", "options", "code", "facts"),
    [
        ({}, {}, "FP-DATA-049", [""]),
        (
            {"a": (spoiled(X, [4, 7], 1, np.nan), Y)},
            {},
            "FP-DATA-043",
            ["owner 'a'", "column 1 has 2 missing or infinite values (rows 4, 7)"],
        ),
        (
            {"a": (spoiled(X, [4], 1, np.inf), Y)},
            {"columns": ("age", "bmi", "one")},
            "FP-DATA-043",
            ["owner 'a'", "column 'bmi' has 1 ", "rows 4)"],
        ),
        (
            {"a": (spoiled(X, list(range(8)), 0, np.nan), Y)},
            {},
            "FP-DATA-043",
            ["owner 'a'", "rows 0, 1, 2, 3, 4, ..."],
        ),
        ({"a": (X, Y)}, {"columns": ("age",)}, "FP-DATA-042", ["owner 'a'", "3 columns", "1 column names"]),
        ({"a": (X, Y), "b": (X, 2 * Y)}, {}, "FP-DATA-045", ["owner 'b'", "label has 6 ", "first is 2 (rows 1, 3"]),
        ({"a": (X, Y * np.nan)}, {}, "FP-DATA-045", ["owner 'a'", "label has 12 ", "first is nan"]),
        ({"a": (X, 0 * Y)}, {}, "FP-DATA-047", ["owner 'a'", "label = 1 among 12"]),
        ({"a": (X, Y), "b": (X, 0 * Y + 1)}, {}, "FP-DATA-047", ["owner 'b'", "label = 0 among 12"]),
        ({"a": (X, Y[:-1])}, {}, "FP-DATA-052", ["owner 'a'", "label", "(11,)", "12 rows"]),
        ({"a": (X[0], Y)}, {}, "FP-DATA-041", ["owner 'a'", "(3,)"]),
        ({"a": ([["x", "y"]], [1])}, {}, "FP-DATA-040", ["owner 'a'"]),
        ({"a": (X, Y), "b": (X[:, :2], Y)}, {}, "FP-DATA-048", ["owner 'b'", "2 columns", "owner 'a' has 3"]),
        ({"a": (X, Y, G)}, {}, "FP-DATA-051", ["owner 'a'", "(X, y)", "3 items"]),
        ({"a": X}, {}, "FP-DATA-051", ["owner 'a'", "(X, y)", "ndarray"]),
        ({"server": (X, Y)}, {}, "FP-DATA-050", ["", "'server'"]),
    ],
)
def test_unusable_tables_are_named(owners: Any, options: Any, code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        neyman_pearson(owners, **options)


@pytest.mark.parametrize(
    ("bound", "code", "facts"),
    [
        (0, "FP-OPTION-057", ["bound", "= 0"]),
        (float("nan"), "FP-OPTION-057", ["bound", "= nan"]),
        ({"a": -1, "b": 1}, "FP-OPTION-057", ["bound", "'a'", "= -1"]),
        ({"a": 1}, "FP-OPTION-053", ["bound", "'b'"]),
        ({"a": 1, "b": 1, "c": 1}, "FP-OPTION-032", ["bound", "'c'", "a, b"]),
        (10**400, "FP-OPTION-070", ["bound"]),
    ],
)
def test_unusable_bounds_are_named(bound: Any, code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        neyman_pearson({"a": (X, Y), "b": (X, Y)}, bound)


@pytest.mark.parametrize(
    ("owners", "server", "code", "facts"),
    [
        ({}, None, "FP-DATA-049", [""]),
        ({"a": (X, Y)}, None, "FP-DATA-051", ["owner 'a'", "(X, y, group)", "2 items"]),
        ({"a": (X, Y, G)}, (X, Y), "FP-DATA-051", ["owner 'server'", "(X, y, group)", "2 items"]),
        ({"a": (X, Y, 0 * G)}, None, "FP-DATA-047", ["owner 'a'", "group = 1 among 12"]),
        ({"a": (X, Y, G)}, (X, Y, 0 * G + 1), "FP-DATA-047", ["owner 'server'", "group = 0 among 12"]),
        ({"a": (X, Y, G + 1)}, None, "FP-DATA-045", ["owner 'a'", "group has 6 ", "first is 2"]),
        ({"a": (X, Y + 3, G)}, None, "FP-DATA-045", ["owner 'a'", "label has 12 ", "first is 3"]),
        ({"a": (X, Y, G)}, (X[:, :2], Y, G), "FP-DATA-048", ["owner 'server'", "2 columns", "owner 'a' has 3"]),
        ({"a": (X, Y, G)}, (spoiled(X, [2], 0, np.nan), Y, G), "FP-DATA-043", ["owner 'server'", "column 0 has 1 "]),
    ],
)
def test_unusable_groups_are_named(owners: Any, server: Any, code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        group_fairness(owners, server)


def test_an_owner_with_one_class_can_still_be_fair() -> None:
    problem = group_fairness({"a": (X, 0 * Y, G)})
    assert objective(problem, np.zeros(3)) == pytest.approx(np.log(2))


def test_a_gap_must_be_positive() -> None:
    with raises_code("FP-OPTION-057", "max_gap", "= -0.1"):
        group_fairness({"a": (X, Y, G)}, max_gap=-0.1)
