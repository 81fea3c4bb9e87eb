"""What every task promises of an owner's share: plain formulas, counted measures, the same from a file and far away."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import Wire, bits, exact
from scipy.optimize import approx_fprime
from task_cases import NAMES, TASKS, TaskCase
from vertical_cases import CUTS, rows, small

import fedpact as fp
from fedpact import tasks
from fedpact.federation.digest import digest
from fedpact.problem import MonotoneProblem


def each(cases: Sequence[TaskCase]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


each_task = each(TASKS)
each_owner = pytest.mark.parametrize("owner", NAMES)


def points(case: TaskCase) -> list[np.ndarray]:
    """Where shares are compared; the parts of a vote that are not negative, where there are votes."""
    rng = np.random.default_rng(3)
    made = [rng.normal(size=case.dim) for _ in range(3)]
    if case.split is not None:
        for w in made:
            w[case.split :] = np.abs(w[case.split :])
    return made


def told(share: fp.Share, w: np.ndarray) -> Any:
    """All that a share says at w, bit for bit."""
    parts: list[Any] = [share.name]
    if share.objective is not None:
        parts += share.objective.value_and_gradient(w)
    if share.constraint is not None:
        parts += share.constraint.function.value_and_jacobian(w)
    if share.measures is not None:
        parts.append(dict(share.measures(w)))
    return exact(parts)


@each_owner
@each_task
def test_the_objective_is_what_its_formula_says(case: TaskCase, owner: str) -> None:
    share = case.share(owner)
    assert share.objective is not None
    for w in points(case):
        value, gradient = share.objective.value_and_gradient(w)
        if case.split is None:
            assert value == pytest.approx(case.objective(owner, w), rel=1e-10)
        slope = approx_fprime(w, lambda x: case.objective(owner, x), 1e-7)
        if case.split is not None:  # an operator: down along u, up along v
            slope[case.split :] *= -1
        np.testing.assert_allclose(gradient, slope, atol=2e-5)


@each_owner
@each_task
def test_the_constraint_is_what_its_formula_says(case: TaskCase, owner: str) -> None:
    share = case.share(owner)
    if case.constraint is None:
        assert share.constraint is None
        return
    assert share.constraint is not None
    for w in points(case):
        np.testing.assert_allclose(share.constraint.function.value(w), case.constraint(owner, w), rtol=1e-9, atol=1e-12)


@each_owner
@each([case for case in TASKS if case.counts is not None])
def test_measures_are_what_counting_gives(case: TaskCase, owner: str) -> None:
    share = case.share(owner)
    assert share.measures is not None
    assert case.counts is not None
    for w in points(case):
        measured, counted = dict(share.measures(w)), case.counts(owner, w)
        assert measured.keys() == counted.keys()
        for name, number in counted.items():
            assert measured[name] == pytest.approx(number, rel=1e-9, abs=1e-12), name


@each_owner
@each([case for case in TASKS if case.from_file is not None])
def test_a_share_from_a_file_is_the_share_from_arrays(case: TaskCase, owner: str, tmp_path: Path) -> None:
    assert case.from_file is not None
    ours, theirs = case.from_file(owner, tmp_path), case.share(owner)
    for w in points(case):
        assert told(ours, w) == told(theirs, w)


@each([case for case in TASKS if case.name != "custom"])
def test_a_share_survives_its_way_to_another_process(case: TaskCase) -> None:
    """As Ray sends it; the share of a custom task is built where it stays."""
    share = case.share(NAMES[0])
    again = pickle.loads(pickle.dumps(share))
    for w in points(case):
        assert told(again, w) == told(share, w)


def problem_of(case: TaskCase) -> fp.FederatedProblem:
    shares = [case.share(name) for name in NAMES]
    if case.split is not None:
        return MonotoneProblem(shares, fp.prox.Box(-3.0, 3.0))
    if case.name == "linear_qp":  # three owners with two equalities each are more than four variables meet
        shares = [fp.Share(share.objective, share.constraint if i == 0 else None) for i, share in enumerate(shares)]
    return fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(0.1))


@each_task
def test_owners_behind_bytes_give_the_same_bits(case: TaskCase) -> None:
    here, there = (fp.solve(problem_of(case), engine=engine, max_rounds=30) for engine in (None, Wire()))
    assert bits(there) == bits(here)


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
@each([case for case in TASKS if case.name != "custom"])
def test_owners_on_ray_give_the_same_bits(case: TaskCase, ray_actors: Any) -> None:
    here, there = (fp.solve(problem_of(case), engine=engine, max_rounds=30) for engine in (None, ray_actors))
    assert bits(there) == bits(here)


# ------------------------------------------------------------------------------------------------------------- columns


def shuffled() -> fp.VerticalProblem:
    """The people of `small`, whom every party lists in an order of its own."""
    table = rows()
    people = np.arange(len(table.y))
    rng = np.random.default_rng(0)
    parties = {}
    for name, cut in CUTS.items():
        order = rng.permutation(people)
        parties[name] = tasks.IdTable([f"p{i}" for i in order], table.X[order, cut])
    own = rng.permutation(people)
    return tasks.vertical_fairness(parties, [f"p{i}" for i in own], table.y[own], table.group[own], 0.01)


def test_parties_in_any_order_are_aligned() -> None:
    found, expected = (fp.solve(problem, tol=1e-7) for problem in (shuffled(), small()))
    assert found.solved
    np.testing.assert_allclose(found.w, expected.w, atol=1e-6)


def test_the_gap_of_a_vertical_problem_is_what_counting_gives() -> None:
    table, problem = rows(), small()
    w = np.random.default_rng(1).normal(size=problem.dim)
    scores = [float(np.append(x, 1.0) @ w) for x in table.X]
    means = []
    for group in (0, 1):
        members = [i for i in range(len(scores)) if table.group[i] == group and table.y[i] == 1]
        means.append(sum(np.log1p(np.exp(-scores[i])) for i in members) / len(members))
    assert problem.scored.gaps(np.array(scores)) == pytest.approx([means[0] - means[1]], rel=1e-10)


def vertical_task() -> tasks.Vertical:
    return tasks.Vertical(label="y", label_at="a", group="group", max_gap=0.01, standardize=False, owners=2)


@pytest.mark.parametrize("name", CUTS)
def test_a_party_from_a_file_is_the_party_from_arrays(name: str, tmp_path: Path) -> None:
    """The task arrives as JSON; the rows are those of an alignment, whatever their order in the file."""
    table = rows()
    order = np.random.default_rng(0).permutation(len(table.y))
    columns = [f"x{j}" for j in range(table.X[:, CUTS[name]].shape[1])]
    lines = [",".join(["id", *columns])]
    lines += [",".join([f"p{i}", *map(repr, map(float, table.X[i, CUTS[name]]))]) for i in order]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    task = vertical_task()
    stated = json.loads(json.dumps(task.stated()))
    built: Any = tasks.FileSource(name, tmp_path / "table.csv")(stated, np.argsort(order))
    [expected] = [party for party in small().shares if party.name == name]
    assert built.X.tobytes() == expected.X.tobytes()
    assert np.array_equal(built.curvature, expected.curvature)
    assert tasks.read_task(stated) == task


def test_a_party_survives_its_way_to_another_process() -> None:
    for party in small().shares:
        assert digest(pickle.loads(pickle.dumps(party))) == digest(party)
