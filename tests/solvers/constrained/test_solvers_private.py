"""Variables that an owner keeps for itself: the pooled optimum is found, and they never leave."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from faults import Wire
from pooled import logistic_mean, solved
from raising import raises_code
from scipy.optimize import root
from scipy.special import expit

import fedpact as fp
from fedpact.cones import Nonnegative
from fedpact.federation import read_record
from fedpact.federation.messages import summed_fields
from fedpact.fitting.agreement import Finished, measure
from fedpact.functions import Affine, Function, LogisticLoss, MeanProbability, Quadratic, Smooth
from fedpact.problem.ray import ALONE
from fedpact.solvers import METHODS, Run
from fedpact.solvers.constrained.accelerated_owner import Moved
from fedpact.solvers.constrained.interior_point import InteriorPoint, Server
from fedpact.solvers.run import Verdict

TAKE = ("interior-point", "accelerated", "proximal-al")
RIDGE = 0.02
BOUND = 0.45
each_method = pytest.mark.parametrize("method", TAKE)


@dataclass(frozen=True, eq=False)
class Clinic:
    """Rows of one owner; the last column is one, and its coefficient the owner's own intercept."""

    X: np.ndarray
    y: np.ndarray

    @property
    def positives(self) -> np.ndarray:
        return self.X[self.y == 1]

    @property
    def negatives(self) -> np.ndarray:
        return self.X[self.y == 0]


@functools.cache
def clinics(seed: int = 0, owners: int = 3, dim: int = 4, rows: int = 60) -> tuple[Clinic, ...]:
    """Owners with one common effect and very different prevalences."""
    rng = np.random.default_rng(seed)
    effect = rng.standard_normal(dim)
    made = []
    for intercept in np.linspace(-2.0, 2.0, owners):
        X = rng.standard_normal((rows, dim))
        y = (X @ effect + intercept + rng.logistic(size=rows) > 0).astype(float)
        made.append(Clinic(np.column_stack([X, np.ones(rows)]), y))
    return tuple(made)


def neyman_pearson(tables: tuple[Clinic, ...], **options: Any) -> fp.FederatedProblem:
    """Mean loss of the negatives, the positives' bounded at every owner."""
    shares = []
    for table in tables:
        loss = LogisticLoss(table.negatives, np.zeros(len(table.negatives)))
        bounded = LogisticLoss(table.positives, np.ones(len(table.positives))) - BOUND
        shares.append(fp.Share(loss, fp.Constraint(bounded, Nonnegative(1)), private=1))
    return fp.FederatedProblem(shares, **{"regularizer": fp.prox.SquaredL2(RIDGE), **options})


def pooled_optimum(tables: tuple[Clinic, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(w, intercepts, prices): Clarabel on all rows says which bounds are active, SciPy solves the KKT equations."""
    n = len(tables)
    dim = tables[0].X.shape[1] - 1
    w = cp.Variable(dim)
    v = cp.Variable(n)
    scores = [cp.hstack([w, v[i]]) for i in range(n)]
    objective = 0.5 * RIDGE * cp.sum_squares(w)
    bounds = []
    for table, x in zip(tables, scores, strict=True):
        objective += logistic_mean(table.negatives, np.zeros(len(table.negatives)), x)
        bounds.append(logistic_mean(table.positives, np.ones(len(table.positives)), x) <= BOUND)
    solved(objective, bounds)
    prices = np.array([float(bound.dual_value) for bound in bounds])
    assert (prices > 0.05).all()  # all are active

    def equations(z: np.ndarray) -> np.ndarray:
        w, v, prices = np.split(z, [dim, dim + n])
        common, own, missed = RIDGE * w, np.zeros(n), np.zeros(n)
        for i, table in enumerate(tables):
            x = np.append(w, v[i])
            up = table.negatives.T @ expit(table.negatives @ x) / len(table.negatives)
            down = -table.positives.T @ expit(-table.positives @ x) / len(table.positives)
            slope = up + prices[i] * down
            common = common + slope[:dim]
            own[i] = slope[dim]
            missed[i] = np.mean(np.logaddexp(0, -table.positives @ x)) - BOUND
        return np.concatenate([common, own, missed])

    found = root(equations, np.concatenate([w.value, v.value, prices]), tol=1e-13)
    assert np.max(np.abs(equations(found.x))) < 1e-11
    return tuple(np.split(found.x, [dim, dim + n]))  # type: ignore[return-value]


# ------------------------------------------------------------------------------------------------------------- answers


@each_method
def test_the_pooled_optimum_with_own_intercepts(method: str) -> None:
    tables = clinics()
    problem = neyman_pearson(tables)
    found = fp.solve(problem, method, tol=1e-8)
    w, intercepts, prices = pooled_optimum(tables)
    assert found.solved, found.reason
    assert found.private is not None
    np.testing.assert_allclose(found.w, w, atol=1e-6)
    np.testing.assert_allclose(np.concatenate(found.private), intercepts, atol=1e-6)
    np.testing.assert_allclose(np.concatenate(found.multipliers), prices, atol=1e-6)
    again = fp.certify(problem, found.w, found.multipliers, private=found.private)
    assert again.worst == pytest.approx(found.certificate.worst, rel=1e-6, abs=1e-12)


@each_method
@pytest.mark.parametrize("regularizer", [fp.prox.L1(0.02), fp.prox.SquaredL2(0.1), fp.prox.Box(-0.4, 0.4)], ids=repr)
def test_without_constraints_and_with_any_regularizer(method: str, regularizer: fp.prox.Prox) -> None:
    tables = clinics(seed=3)
    shares = [fp.Share(LogisticLoss(table.X, table.y), private=1) for table in tables]
    found = fp.solve(fp.FederatedProblem(shares, regularizer=regularizer), method, tol=1e-7)
    assert found.solved, found.reason
    w = cp.Variable(4)
    v = cp.Variable(len(tables))
    objective = sum(logistic_mean(table.X, table.y, cp.hstack([w, v[i]])) for i, table in enumerate(tables))
    limits = []
    if isinstance(regularizer, fp.prox.Box):
        limits = [w <= 0.4, w >= -0.4]
    elif isinstance(regularizer, fp.prox.L1):
        objective += 0.02 * cp.norm1(w)
    else:
        objective += 0.05 * cp.sum_squares(w)
    assert found.objective == pytest.approx(solved(objective, limits), abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_a_stationary_point_of_smoothed_rates(seed: int) -> None:
    """Non-convex constraints: stationarity and feasibility by formulas and differences that are not the library's."""
    tables = clinics(seed=10 + seed)
    shares = []
    for table in tables:
        rate = fp.Constraint(MeanProbability(table.negatives) - 0.15, Nonnegative(1))
        shares.append(fp.Share(LogisticLoss(table.X, table.y), rate, private=1))
    found = fp.solve(fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(RIDGE)), "interior-point", tol=1e-7)
    assert found.solved, found.reason
    assert found.private is not None
    intercepts = np.concatenate(found.private)
    prices = np.concatenate(found.multipliers)

    def rates(z: np.ndarray) -> np.ndarray:
        points = [np.append(z[:4], v) for v in z[4:]]
        return np.array([np.mean(expit(t.negatives @ x)) - 0.15 for t, x in zip(tables, points, strict=True)])

    def lagrangian(z: np.ndarray) -> float:
        points = [np.append(z[:4], v) for v in z[4:]]
        pairs = zip(tables, points, strict=True)
        losses = sum(np.mean(np.logaddexp(0, (1 - 2 * t.y) * (t.X @ x))) for t, x in pairs)
        return float(losses + 0.5 * RIDGE * z[:4] @ z[:4] + prices @ rates(z))

    point = np.append(found.w, intercepts)
    steps = 1e-6 * np.eye(point.size)
    slopes = [(lagrangian(point + step) - lagrangian(point - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(slopes, 0.0, atol=1e-6)
    assert np.max(rates(point)) <= 1e-6
    assert np.max(np.abs(prices * rates(point))) <= 1e-6


@each_method
def test_a_coupled_constraint_on_private_variables(method: str) -> None:
    tables = clinics(seed=5)
    shares = []
    for table in tables:
        part = LogisticLoss(table.positives, np.ones(len(table.positives))) - 0.3
        shares.append(fp.Share(LogisticLoss(table.X, table.y), coupled=part, private=1))
    problem = fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(RIDGE))
    found = fp.solve(problem, method, tol=1e-6)
    assert found.solved, found.reason
    w = cp.Variable(4)
    v = cp.Variable(len(tables))
    scores = [cp.hstack([w, v[i]]) for i in range(len(tables))]
    pairs = list(zip(tables, scores, strict=True))
    objective = 0.5 * RIDGE * cp.sum_squares(w) + sum(logistic_mean(t.X, t.y, x) for t, x in pairs)
    total = sum(logistic_mean(t.positives, np.ones(len(t.positives)), x) for t, x in pairs)
    assert found.objective == pytest.approx(solved(objective, [total <= 0.9]), abs=1e-5)
    assert found.coupled_multiplier[0] > 0.05  # it is active
    again = fp.certify(problem, found.w, found.multipliers, found.coupled_multiplier, found.private)
    assert again.worst == pytest.approx(found.certificate.worst, rel=1e-6, abs=1e-12)


@each_method
def test_private_variables_without_curvature(method: str) -> None:
    """min |w|^2 / 2 + v_1 + v_2 with v_i >= |w - a_i|^2: w = 2 (a_1 + a_2) / 5."""
    centres = np.array([[1.0, 2.0], [-1.0, 0.5]])
    shares = []
    for a in centres:
        above = Quadratic(np.diag([2.0, 2.0, 0.0]), np.append(-2 * a, -1.0)) + float(a @ a)
        only = Quadratic(np.zeros((3, 3)), [0.0, 0.0, 1.0])
        shares.append(fp.Share(only, fp.Constraint(above, Nonnegative(1)), private=1))
    found = fp.solve(fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(1.0)), method, tol=1e-7)
    w = 2 * centres.sum(axis=0) / 5
    assert found.solved, found.reason
    assert found.private is not None
    np.testing.assert_allclose(found.w, w, atol=1e-6)
    np.testing.assert_allclose(np.concatenate(found.private), np.sum((w - centres) ** 2, axis=1), atol=1e-6)


def test_the_step_of_private_variables_is_shortened_where_newton_overshoots() -> None:
    """log cosh: at a distance of 3 Newton's step is of length 80, and the next one of 500."""

    def overshooting(x: np.ndarray) -> tuple[float, np.ndarray]:
        away = x - [1.0, 3.0]
        value = np.logaddexp(away, -away).sum() + 0.001 * (x[0] - x[1]) ** 2
        return value, np.tanh(away) + 0.002 * (x[0] - x[1]) * np.array([1.0, -1.0])

    def hessian(x: np.ndarray) -> np.ndarray:
        return np.diag(1 / np.cosh(x - [1.0, 3.0]) ** 2) + 0.002 * np.array([[1.0, -1.0], [-1.0, 1.0]])

    share = fp.Share(Smooth(overshooting, dim=2, hess=hessian), private=1)
    found = fp.solve(fp.FederatedProblem([share]), "interior-point", tol=1e-9, w0=[6.0])
    assert found.solved, found.reason
    assert not any("goes on" in note for note in found.history.notes)  # no other method had to help
    assert found.private is not None
    point = np.append(found.w, found.private[0])
    np.testing.assert_allclose(overshooting(point)[1], 0.0, atol=1e-8)


# ------------------------------------------------------------------------------------------------------------- secrecy

SEEN: set[float] = set()


class Noting(Function):
    """Notes the private variable of every point it is evaluated at."""

    def __init__(self, inner: Function) -> None:
        self.inner = inner
        self.dim = inner.dim
        self.has_hessian = True

    def value_and_gradient(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        SEEN.add(float(w[-1]))
        return self.inner.value_and_gradient(w)

    def hessian(self, w: np.ndarray) -> np.ndarray:
        SEEN.add(float(w[-1]))
        return self.inner.hessian(w)


def noting() -> fp.FederatedProblem:
    SEEN.clear()
    problem = neyman_pearson(clinics())
    shares = []
    for share in problem.shares:
        assert share.objective is not None
        shares.append(replace(share, objective=Noting(share.objective)))
    return fp.FederatedProblem(shares, regularizer=problem.regularizer)


def traces(data: bytes, values: set[float]) -> list[float]:
    """Those of the values that the data hold, as a double or as text; fewer digits than ten may be a coincidence."""
    found = []
    for value in values - {0.0, ALONE, -ALONE}:  # everybody knows how far they are walked
        texts = (repr(value), f"{value:.10g}", f"{value:.10e}")
        if np.float64(value).tobytes() in data or any(text.encode() in data for text in texts):
            found.append(value)
    return found


@each_method
@pytest.mark.parametrize("secure", [False, True])
def test_nothing_that_the_coordinator_has_holds_a_private_value(method: str, secure: bool, tmp_path: Path) -> None:
    record = tmp_path / "messages"
    folder = tmp_path / "checkpoint"
    problem = noting()
    found = fp.solve(problem, method, tol=1e-6, record=record, checkpoint=folder, secure_sum=secure)
    assert found.solved, found.reason
    assert found.private is not None
    known = SEEN | {float(v) for own in found.private for v in own}
    assert len(known) > 10
    saved = found.save(tmp_path / "answer").read_bytes()
    kept = [path for path in folder.rglob("*") if path.is_file() and "owners" not in path.relative_to(folder).parts]
    assert kept
    held = [record.read_bytes(), saved, repr(found).encode(), repr(found.history).encode()]
    held += [path.read_bytes() for path in kept]
    for data in held:
        assert traces(data, known) == []
    assert traces(saved, {float(found.w[0])})  # the search finds what is there
    assert fp.Solution.load(tmp_path / "answer.npz").private is None


@each_method
def test_nothing_that_travels_holds_a_private_value(method: str) -> None:
    sent: list[bytes] = []

    def keep(owner: str, data: bytes) -> bytes:
        sent.append(data)
        return data

    problem = noting()
    found = fp.solve(problem, method, tol=1e-6, engine=Wire(down=keep, up=keep))
    assert found.solved, found.reason
    assert found.private is None  # the owners are elsewhere
    assert len(SEEN) > 10
    assert traces(b"".join(sent), SEEN) == []


def test_norms_that_travel_do_not_tell_how_far_private_variables_moved(tmp_path: Path) -> None:
    """In the clear |F|^2 stands beside the vector F; with the private part in it, it would tell that part."""
    found = fp.solve(neyman_pearson(clinics()), "accelerated", tol=1e-6, secure_sum=False, record=tmp_path / "messages")
    assert found.solved, found.reason
    moves = [m["content"] for m in read_record(tmp_path / "messages") if m["type"].endswith("accelerated_owner:Moved")]
    assert len(moves) > 10
    names = list(summed_fields(Moved))
    for content in moves:
        ends = np.cumsum([int(np.prod(shape, dtype=int)) for shape in content["shapes"]])[:-1]
        told = dict(zip(names, np.split(content["sums"], ends), strict=True))
        size = told["residual"] @ told["residual"] / told["weight"][0]  # of sqrt(r_i) F_i, where r_i F_i is told
        assert told["squared"][0] == pytest.approx(size, rel=1e-12)


def lengths_by_kind(path: Path) -> dict[tuple[bool, ...], set[tuple[int, ...]]]:
    """Lengths of what is summed in the replies of the interior-point method, by which parts were asked for."""
    found: dict[tuple[bool, ...], set[tuple[int, ...]]] = {}
    for message in read_record(path):
        if message["type"].endswith("condensation:System"):
            lengths = tuple(int(np.prod(shape)) for shape in message["content"]["shapes"])
            found.setdefault(tuple(length > 0 for length in lengths), set()).add(lengths)
    return found


def test_messages_are_as_long_as_without_private_variables(tmp_path: Path) -> None:
    """Whether, and how many, private variables there are cannot be told from the messages of "interior-point"."""
    tables = clinics()
    found = {}
    for private in (0, 1, 3):
        shares = []
        for table in tables:
            X = np.column_stack([table.X[:, :4], table.X[:, [4, 0, 1]] ** 2])[:, : 4 + private]
            bounded = fp.Constraint(MeanProbability(X[table.y == 0]) - 0.45, Nonnegative(1))
            shares.append(fp.Share(LogisticLoss(X, table.y), bounded, private=private))
        problem = fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(RIDGE))
        answer = fp.solve(problem, "interior-point", tol=1e-6, record=tmp_path / str(private))
        assert answer.solved, answer.reason
        found[private] = lengths_by_kind(tmp_path / str(private))
    for private in (1, 3):
        common = found[0].keys() & found[private].keys()
        assert len(common) >= 2
        assert all(found[0][kind] == found[private][kind] for kind in common)


def test_the_same_exchanges_where_private_variables_do_not_matter() -> None:
    """v^2 beside a problem in w: the iterates are the same, and so is every byte that is counted."""
    ridge = fp.prox.SquaredL2(RIDGE)
    shares = []
    for table in clinics():
        X = table.X[:, :4]
        bound = fp.Constraint(MeanProbability(X[table.y == 0]) - 0.45, Nonnegative(1))
        shares.append(fp.Share(LogisticLoss(X, table.y), bound))
    beside = []
    for share in shares:
        assert share.objective is not None
        assert share.constraint is not None
        objective = fp.functions.extend(share.objective, 5) + Quadratic(np.diag([0.0, 0.0, 0.0, 0.0, 2.0]))
        bound = fp.Constraint(fp.functions.extend(share.constraint.function, 5), share.constraint.cone)
        beside.append(replace(share, objective=objective, constraint=bound, private=1))
    answers = [
        fp.solve(fp.FederatedProblem(given, regularizer=ridge), "interior-point", tol=1e-6)
        for given in (shares, beside)
    ]
    assert all(answer.solved for answer in answers)
    np.testing.assert_allclose(answers[1].w, answers[0].w, atol=1e-8)
    assert answers[1].communication == answers[0].communication


# ------------------------------------------------------------------------------------------------ federation and memory


@each_method
def test_owners_elsewhere_that_restart_before_every_order(method: str, tmp_path: Path) -> None:
    problem = neyman_pearson(clinics())
    expected = fp.solve(problem, method, tol=1e-4)
    remote = fp.RemoteProblem({share.label: share for share in problem.shares}, regularizer=problem.regularizer)
    found = fp.solve(remote, method, tol=1e-4, engine=Wire(folder=tmp_path, restarting=True))
    assert found.private is None
    assert found.w.tobytes() == expected.w.tobytes()
    assert found.certificate == expected.certificate


def test_the_coordinator_knows_only_that_there_are_some() -> None:
    share = fp.Share(Quadratic(np.eye(7)), private=3, name="north")
    said = fp.problem.describe(share)
    assert said.private
    assert said.dim == 4
    stand_in = fp.RemoteProblem({"north": share}).assemble({"north": said})
    assert stand_in.dim == 4
    assert stand_in.private


def measured(problem: fp.FederatedProblem) -> fp.FederatedProblem:
    """The same, its owners tell the smallest and the largest private variable in their measures."""

    def told(x: np.ndarray) -> dict[str, float]:
        return {"intercept": float(x[-1]), "first": float(x[0])}

    return fp.FederatedProblem([replace(share, measures=told) for share in problem.shares], None, problem.regularizer)


@each_method
def test_measures_know_the_private_variables_of_every_model_of_the_session(method: str, tmp_path: Path) -> None:
    strict = measured(neyman_pearson(clinics()))
    loose = measured(neyman_pearson(clinics(), regularizer=fp.prox.SquaredL2(1.0)))
    for resume in (False, True):
        with fp.Session(checkpoint=tmp_path, resume=resume) as session:
            answers = [fp.solve(problem, method, tol=1e-5, session=session) for problem in (strict, loose)]
            for answer in answers:
                assert answer.private is not None
                replies = session.ask(measure, Finished(w=answer.w))
                assert [reply.told()["intercept"] for reply in replies] == [float(own[0]) for own in answer.private]
                for reply, price in zip(replies, answer.multipliers[1:], strict=True):
                    assert abs(reply.values[0] * price[0]) <= 1e-4  # the constraint, at its own intercept
            with raises_code("FP-PROBLEM-252", "client 1"):
                session.ask(measure, Finished(w=np.full(4, 0.1)))


def test_measures_elsewhere() -> None:
    problem = measured(neyman_pearson(clinics()))
    here = fp.solve(problem, tol=1e-6)
    assert here.private is not None
    with fp.Session(Wire()) as session:
        found = fp.solve(problem, tol=1e-6, session=session)
        replies = session.ask(measure, Finished(w=found.w))
    assert [reply.told()["intercept"] for reply in replies] == [float(own[0]) for own in here.private]


@dataclass(frozen=True, kw_only=True)
class Leaves(InteriorPoint):
    """Gives up after a few iterations, so that another method goes on."""

    following: str = "accelerated"

    def _end(self, run: Run, state: Server) -> Verdict | None:
        if state.k < 4:
            return None
        return Verdict("stalled", "left", then=self.following)


@pytest.mark.parametrize("following", ["accelerated", "proximal-al"])
def test_the_next_method_starts_from_the_private_variables_too(following: str) -> None:
    tables = clinics()
    found = fp.solve(neyman_pearson(tables), Leaves(following=following), tol=1e-7)
    assert found.solved, found.reason
    assert any(f"{following} goes on" in note for note in found.history.notes)
    w, intercepts, _ = pooled_optimum(tables)
    assert found.private is not None
    np.testing.assert_allclose(found.w, w, atol=1e-5)
    np.testing.assert_allclose(np.concatenate(found.private), intercepts, atol=1e-5)
    before = [record for record in found.history.outer if record.iteration <= 4]
    first = next(record for record in found.history.outer if record.iteration == 5)
    best = min(before, key=lambda record: max(record.stationarity, record.feasibility))
    assert (first.stationarity, first.feasibility) == (best.stationarity, best.feasibility)


# ---------------------------------------------------------------------------------------------------- ends and refusals


@pytest.mark.parametrize("method", sorted(set(METHODS) - set(TAKE)))
def test_other_methods_say_which_take_them(method: str) -> None:
    problem = fp.FederatedProblem([fp.Share(Quadratic(np.eye(3)), private=1, name="north")])
    if METHODS[method].needs.columns:
        return
    with raises_code("FP-OPTION-110", f'method "{method}"', "north", '"interior-point", "accelerated"', "proximal-al"):
        fp.solve(problem, method)


def test_auto_takes_one_of_them() -> None:
    problem = neyman_pearson(clinics())
    assert fp.solve(problem, tol=1e-4).method == "interior-point"
    smooth = Smooth(lambda x: (float(x @ x), 2 * x), dim=3)
    assert fp.solve(fp.FederatedProblem([fp.Share(smooth, private=1)]), tol=1e-4).method == "accelerated"


@each_method
def test_what_looks_infeasible_without_the_private_variable(method: str) -> None:
    """w <= v - 1 at one owner and w >= 1 at the other: nothing may be claimed before the slope in v balances too."""
    shares = [
        fp.Share(Quadratic(np.eye(2)), fp.Constraint(Affine([[1.0, -1.0]], [1.0]), Nonnegative(1)), private=1),
        fp.Share(Quadratic(np.eye(1)), fp.Constraint(Affine([[-1.0]], [1.0]), Nonnegative(1))),
    ]
    found = fp.solve(fp.FederatedProblem(shares), method, tol=1e-6)
    assert found.solved, found.reason
    np.testing.assert_allclose([found.w[0], *(found.private or [[]])[0]], [1.0, 2.0], atol=1e-5)


@each_method
def test_a_conflict_is_not_claimed(method: str) -> None:
    shares = [
        fp.Share(Quadratic(np.eye(2)), fp.Constraint(Affine([[1.0, 0.0]], [1.0]), Nonnegative(1)), private=1),
        fp.Share(Quadratic(np.eye(1)), fp.Constraint(Affine([[-1.0]], [1.0]), Nonnegative(1))),
    ]
    problem = fp.FederatedProblem(shares)
    found = fp.solve(problem, method, tol=1e-6, max_rounds=120)
    assert found.status in ("stalled", "max_rounds")
    assert fp.problem.prove_infeasible(problem, [0.0], [None, [1.0], [1.0]]) == ()


def test_an_intercept_without_end_is_unbounded() -> None:
    """All rows of one owner are positive: its own intercept makes their loss as small as you like."""
    tables = clinics()
    shares = [fp.Share(LogisticLoss(tables[0].X, np.ones(len(tables[0].y))), private=1)]
    found = fp.solve(fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(1.0)), tol=1e-4)
    assert found.status == "unbounded"


@each_method
def test_wrong_slopes_of_private_variables_are_found(method: str) -> None:
    def wrong(x: np.ndarray) -> tuple[float, np.ndarray]:
        away = x - [1.0, 2.0]
        return float(away @ away), 2 * away + np.array([0.0, 1.0])

    share = fp.Share(Smooth(wrong, dim=2, hess=lambda x: 2 * np.eye(2)), private=1, name="north")
    found = fp.solve(fp.FederatedProblem([share]), method, tol=1e-4)
    assert found.status == "stalled"
    assert "north" in found.reason


@pytest.mark.parametrize("build", [LogisticLoss, Smooth], ids=lambda kind: kind.__name__)
def test_a_private_variable_that_no_function_uses(build: Callable[..., Function]) -> None:
    X = np.column_stack([clinics()[0].X, np.zeros(60)])
    function: Function = LogisticLoss(X, clinics()[0].y)
    if build is Smooth:
        function = Smooth(function.value_and_gradient, dim=6)
    problem = fp.FederatedProblem([fp.Share(function, private=2, name="north")])
    with raises_code("FP-PROBLEM-251", "north", "variable 2 of 2"):
        fp.solve(problem)


def test_a_coupled_map_of_private_variables_at_owners_elsewhere() -> None:
    share = fp.Share(Quadratic(np.eye(3)), coupled=Affine([[1.0, 0.0, 1.0]], [1.0]), private=1, name="north")
    problem = fp.RemoteProblem({"north": share})
    with raises_code("FP-OPTION-114"):
        fp.solve(problem, "interior-point")
    found = fp.solve(problem, tol=1e-6)
    assert (found.method, found.status) == ("accelerated", "solved")
    np.testing.assert_allclose(found.w, [-0.5, 0.0], atol=1e-5)


def test_private_bounds_that_exclude_each_other_are_infeasible_with_a_proof() -> None:
    """v >= 1 and v <= -1 at one owner, on a variable that it keeps for itself; v <= 2 instead of v <= -1 is met."""
    for offset, status in ((1.0, "infeasible"), (-2.0, "solved")):
        bounds = fp.Constraint(Affine([[0.0, 1.0], [0.0, -1.0]], [offset, 1.0]), Nonnegative(2))
        own = fp.Share(Quadratic(np.eye(2)), bounds, name="a", private=1)
        problem = fp.FederatedProblem([own, fp.Share(Quadratic(np.eye(1)), name="b")])
        answer = fp.solve(problem, tol=1e-6)
        assert answer.status == status
        if status == "infeasible":
            assert answer.conflict == ("a",)
            assert answer.proof is not None
            assert answer.proof.check(problem, 1e-6) == ("a",)
