"""Owners of one kind that answer in one computation, against the same owners one by one and in threads: equal bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from faults import bits, stop_at

import fedpact as fp
from fedpact import data, tasks
from fedpact.cones import Nonnegative
from fedpact.engines import InProcess
from fedpact.errors import OwnerLost
from fedpact.federation import Owner
from fedpact.federation.crew import Crew, Held, part_of
from fedpact.functions import Function, HuberLoss, LogisticLoss, PoissonLoss, Quadratic, SquaredLoss
from fedpact.functions.many import join_functions
from fedpact.solvers.constrained import many_owners
from fedpact.solvers.constrained.condensation import System
from fedpact.solvers.constrained.interior_point import Advance, Begin, State, advance, balance, begin
from fedpact.solvers.constrained.pace import Pace
from fedpact.solvers.steps import Conclude, conclude
from fedpact.types import Matrix, Vector

ONE_BY_ONE = InProcess(jointly=False)


def rows_of(rng: np.random.Generator, rows: int, dim: int = 5) -> tuple[Matrix, Vector]:
    X = rng.normal(size=(rows, dim))
    return X, (X[:, 0] + rng.normal(size=rows) > 0).astype(float)


def below(*losses: Function) -> fp.Constraint:
    if len(losses) == 1:
        return fp.Constraint(losses[0], Nonnegative(1))  # type: ignore[arg-type]
    return fp.Constraint(fp.functions.Stack(losses), Nonnegative(len(losses)))


def neyman_pearson() -> fp.FederatedProblem:
    """More owners than NumPy adds up in one go where it may change the order, and few variables."""
    return tasks.neyman_pearson(data.neyman_pearson(40, 24, 3, seed=3), 0.4)


def two_rows(bound: float = 0.62) -> fp.FederatedProblem:
    """Two bounded losses an owner, tables of several lengths, weights of rows, a sum of two means as objective."""
    rng = np.random.default_rng(1)
    shares = []
    for rows in (30, 30, 12, 45, 45, 45):
        (X, y), (A, a), (B, b) = (rows_of(rng, rows), rows_of(rng, rows), rows_of(rng, 17))
        objective = 0.4 * LogisticLoss(X, y, weight=rng.uniform(size=rows)) + 0.1 * SquaredLoss(A, a) + 2.0
        shares.append(fp.Share(objective, below(LogisticLoss(A, a) - bound, 0.5 * LogisticLoss(B, b) - bound / 2)))
    return fp.FederatedProblem(shares, regularizer=fp.prox.SquaredL2(0.01))


def with_server() -> fp.FederatedProblem:
    """The same, with a constraint of the server, and a regularizer that is not smooth."""
    server = fp.Share(None, below(Quadratic(np.eye(5), np.zeros(5)) - 0.3))
    return fp.FederatedProblem(two_rows().shares, server, fp.prox.L1(0.01))


def without_constraints() -> fp.FederatedProblem:
    rng = np.random.default_rng(2)
    shares = []
    for _ in range(4):
        X, y = rows_of(rng, 25)
        shares.append(fp.Share(HuberLoss(X, X @ np.arange(5.0) + y, delta=0.7)))
    return fp.FederatedProblem(shares)


def counts() -> fp.FederatedProblem:
    """Poisson losses with exposures, which overflow on the way: the steps of single owners take over."""
    rng = np.random.default_rng(4)
    shares = []
    for _ in range(5):
        X = 3 * rng.normal(size=(40, 3))
        y = rng.poisson(np.exp(0.3 * X[:, 0]))
        shares.append(fp.Share(PoissonLoss(X, y, offset=rng.normal(size=40)) * 0.2))
    return fp.FederatedProblem(shares)


def conflicting() -> fp.FederatedProblem:
    """No model has so small a loss everywhere: exchanges that seek a proof are answered one by one."""
    return two_rows(bound=0.05)


def separable() -> fp.FederatedProblem:
    """Its objective falls forever, which is probed for."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(30, 3))
    return fp.FederatedProblem([fp.Share(LogisticLoss(part, part[:, 0] > 0)) for part in np.split(X, 3)])


PROBLEMS = (neyman_pearson, two_rows, with_server, without_constraints, counts, conflicting, separable)


def solve(problem: fp.FederatedProblem, **options: Any) -> fp.Solution:
    return fp.solve(problem, "interior-point", **{"tol": 1e-7, "max_rounds": 80, "fallback": False, **options})


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the owners that were asked one by one."""
    asked: list[str] = []
    handle = Owner.handle

    def watched(owner: Owner, *given: Any) -> Any:
        asked.append(owner.name)
        return handle(owner, *given)

    monkeypatch.setattr(Owner, "handle", watched)
    return asked


@pytest.mark.parametrize("build", PROBLEMS)
def test_the_answer_and_all_that_is_told_of_it_have_equal_bits(build: Callable[[], fp.FederatedProblem]) -> None:
    problem = build()
    jointly = solve(problem)
    for engine in (ONE_BY_ONE, "threads"):
        single = solve(problem, engine=engine)
        assert bits(jointly) == bits(single)
        assert jointly.history == single.history
        assert jointly.communication == single.communication
        assert jointly.reason == single.reason


def test_the_problems_end_as_they_should() -> None:
    """So that every kind of exchange takes place in the tests above."""
    found = [solve(build()).status for build in PROBLEMS]
    assert found == ["solved", "solved", "solved", "solved", "solved", "infeasible", "unbounded"]


@pytest.mark.parametrize("build", [neyman_pearson, two_rows, with_server, without_constraints])
def test_no_owner_is_asked_alone(build: Callable[[], fp.FederatedProblem], alone: list[str]) -> None:
    assert solve(build()).solved
    assert not alone


@pytest.mark.parametrize(
    "given", [{"secure_sum": True}, {"record": "messages"}, {"checkpoint": "run"}, {"deadline": 60.0}]
)
def test_what_is_about_single_messages_asks_every_owner(
    given: dict[str, Any], alone: list[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    problem = neyman_pearson()
    expected = solve(problem)
    assert not alone
    found = solve(problem, **given)
    assert set(alone) == set(problem.names)
    assert np.allclose(found.w, expected.w, rtol=1e-6)


def test_owners_of_different_kinds_are_asked_one_by_one(alone: list[str]) -> None:
    rng = np.random.default_rng(0)
    shares = [fp.Share(LogisticLoss(*rows_of(rng, 20))), fp.Share(SquaredLoss(*rows_of(rng, 20)))]
    assert solve(fp.FederatedProblem(shares)).solved
    assert set(alone) == {"client 1", "client 2"}


def test_ctrl_c_gives_the_same_point() -> None:
    problem = two_rows()
    jointly, single = (solve(problem, callbacks=[stop_at(3)], engine=engine) for engine in (None, ONE_BY_ONE))
    assert jointly.status == "interrupted"
    assert bits(jointly) == bits(single)


@pytest.mark.parametrize("lost_in", [begin, balance], ids=["the first exchange", "a later one"])
def test_a_lost_owner_ends_the_solve_as_it_does_one_by_one(lost_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proofs of conflict are sought one by one, after joint exchanges: the best point of these is returned."""

    def lose(name: str) -> None:
        if name == "client 2":
            raise OwnerLost("client 2: gone", code="FP-LOST-001")

    handle = Owner.handle
    prepare = Crew._prepare

    def handled(owner: Owner, step: Any, *given: Any) -> Any:
        if step is lost_in:
            lose(owner.name)
        return handle(owner, step, *given)

    def prepared(crew: Crew, *given: Any) -> Any:
        if lost_in is begin:
            lose("client 2")
        return prepare(crew, *given)

    monkeypatch.setattr(Owner, "handle", handled)
    monkeypatch.setattr(Crew, "_prepare", prepared)
    found, expected = (solve(conflicting(), engine=engine, retries=0) for engine in (None, ONE_BY_ONE))
    assert found.status == "client_lost"
    assert "client 2" in found.reason
    assert np.isfinite(found.certificate.worst) == (lost_in is balance)
    assert bits(found) == bits(expected)
    assert found.communication.rounds == expected.communication.rounds


@pytest.mark.parametrize("build", [neyman_pearson, two_rows, with_server])
def test_a_step_that_was_not_the_last_is_followed_by_a_look_at_the_same_point(
    build: Callable[[], fp.FederatedProblem], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = build()
    expected = solve(problem, tol=1e-10)
    monkeypatch.setattr(Pace, "ends", lambda *given: True)
    found = solve(problem, tol=1e-10)
    assert found.solved
    assert found.rounds > expected.rounds
    np.testing.assert_allclose(found.w, expected.w, atol=1e-8)
    assert bits(found) == bits(solve(problem, tol=1e-10, engine=ONE_BY_ONE))


def test_one_session_solves_with_other_shares() -> None:
    with fp.Session() as session, fp.Session(ONE_BY_ONE) as alone:
        for bound in (0.62, 0.6):
            found, expected = (solve(two_rows(bound), session=one) for one in (session, alone))
            assert bits(found) == bits(expected)
            assert found.communication == expected.communication


# ---------------------------------------------------------------------------------------------------- fields by field


def assert_equal(found: Any, expected: Any, where: str) -> None:
    """Equal in all fields, and in the fields of these."""
    if is_dataclass(expected):
        for f in fields(expected):
            assert_equal(getattr(found, f.name), getattr(expected, f.name), f"{where}.{f.name}")
    elif isinstance(expected, np.ndarray):
        assert found.shape == expected.shape, where
        assert np.array_equal(found, expected), where
    else:
        assert found == expected, where


def random_orders(rng: np.random.Generator, dim: int) -> list[Advance]:
    """Barrier steps with and without the semismooth system, back, cut, semismooth steps, one without a system."""
    none = np.zeros(0)
    plans: list[dict[str, Any]] = [
        {"judge": False, "keep": True},
        {"near": True, "best": True},
        {"near": True, "back": True},
        {"near": True, "back": True, "longer": 0.3, "length": 0.3},
        {"near": True, "finishing": True},
        {"near": True, "finishing": True, "longer": 2.0},
        {"finishing": True, "bends": False},
        {"near": True, "finishing": True, "longer": 0.0},
    ]
    common = {"coupled": none, "judged_coupled": none, "curvature": 0.3, "target": 1e-3}
    usual = {"longer": 1.0, "keep": False, "best": False, "back": False}
    return [
        Advance(iteration=k, step=0.1 * rng.normal(size=dim), **{**common, **usual, **plan})
        for k, plan in enumerate(plans, start=1)
    ]


@pytest.mark.parametrize("build", [neyman_pearson, two_rows, without_constraints])
@pytest.mark.parametrize("seed", range(3))
def test_states_and_replies_are_those_of_single_owners(build: Callable[[], fp.FederatedProblem], seed: int) -> None:
    shares = Held(build().shares)
    rng = np.random.default_rng(seed)
    dim = shares[0].objective.dim
    none = np.zeros(0)
    start = Begin(w=0.1 * rng.normal(size=dim), holders=len(shares) + 1, coupled=none, judged_coupled=none)
    singles: list[Any] = [begin(share, None, start) for share in shares]
    joint: Any = many_owners.begin_all(shares, None, start)
    assert_parts(joint, singles)
    for order in random_orders(rng, dim):
        singles = [advance(share, state, order) for share, (state, _) in zip(shares, singles, strict=True)]
        joint = many_owners.advance_all(shares, joint[0], order)
        assert isinstance(joint[1], System)
        assert_parts(joint, singles)
    last = Conclude(w=joint[0].latest.w[0], iteration=8, coupled=none, ray=rng.normal(size=dim))
    singles = [conclude(share, state, last) for share, (state, _) in zip(shares, singles, strict=True)]
    assert_parts(many_owners.conclude_all(shares, joint[0], last), singles)


def assert_parts(joint: Any, singles: list[Any]) -> None:
    state, reply = joint
    assert isinstance(state, State)
    for number, (own_state, own_reply) in enumerate(singles):
        assert_equal(part_of(state, number, len(singles)), own_state, "state")
        assert_equal(part_of(reply, number, len(singles)), own_reply, "reply")


@pytest.mark.parametrize("rows", [(8, 8, 8), (9, 200, 9, 9, 31), (4000, 3, 4000)])
def test_functions_in_one_have_the_bits_of_each(rows: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(rows))
    functions: list[Function] = []
    for number, count in enumerate(rows):
        X, y = rows_of(rng, count, 11)
        weight = rng.uniform(size=count)
        functions.append((0.1 + number) * LogisticLoss(X, y, weight, offset=y) - 0.5)
    joined = join_functions(functions)
    assert joined is not None
    w = rng.normal(size=11)
    values, gradients, hessians = joined.expand(w)
    curved = hessians(np.ones(len(rows), dtype=bool))
    others = hessians(np.arange(len(rows)) % 2 == 1)
    for number, function in enumerate(functions):
        value, gradient, hessian = function.expand(w)
        assert np.array_equal(others[number], (number % 2) * hessian())
        assert values[number] == value
        assert joined.value(w)[number] == function.value(w)
        assert np.array_equal(gradients[number], gradient)
        assert np.array_equal(curved[number], hessian())
