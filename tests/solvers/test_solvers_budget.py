"""One budget and one Ctrl-C for all that a solve does: rescues, methods that go on, problems solved in other units."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from marks import slow_but

import fedpact as fp
from fedpact.cones import Nonnegative
from fedpact.federation import Session
from fedpact.functions import Affine, LogisticLoss, Quadratic


@functools.cache
def touching_loss() -> fp.FederatedProblem:
    """The server's bound on a loss is the least one: a rescue is tried, then another method goes on."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = (X[:, 0] + rng.logistic(size=40) > 0).astype(float)
    loss = LogisticLoss(X, y)
    least = fp.solve(fp.FederatedProblem([fp.Share(loss)]), tol=1e-9).objective
    shares = [fp.Share(LogisticLoss(X[::-1], y), name="north"), fp.Share(Quadratic(np.eye(3)), name="south")]
    return fp.FederatedProblem(shares, fp.Share(None, fp.Constraint(loss - least, Nonnegative(1))))


@functools.cache
def bent() -> fp.FederatedProblem:
    """w_0^2 - w_1^2 >= 1 at one owner, which is not convex: newton-al goes on."""
    bend = fp.Constraint(Quadratic(np.diag([-2.0, 2.0]), [0.0, 0.1]) + 1.0, Nonnegative(1))
    shares = [
        fp.Share(Quadratic(np.eye(2), [0.1, -1.0]), bend, name="north"),
        fp.Share(Quadratic(np.eye(2)), name="south"),
    ]
    return fp.FederatedProblem(shares)


@functools.cache
def uneven() -> fp.FederatedProblem:
    """Columns whose sizes differ by 1e6: solved in units of the problem's own."""
    shares = [
        fp.Share(
            Quadratic(np.diag([1.0, 1e12]), [-3.0, -1e6]), fp.Constraint(Affine([[1.0, 1e6]], [-2.0]), Nonnegative(1))
        )
        for _ in range(2)
    ]
    return fp.FederatedProblem(shares)


PROBLEMS = [touching_loss, bent, uneven]
each_problem = pytest.mark.parametrize("make", PROBLEMS, ids=lambda make: make.__name__)
LIMIT = 150
TOL = 1e-9


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The step of every exchange, in whatever session."""
    asked: list[str] = []
    ask = Session.ask

    def counting(session: Session, step: Callable[..., Any], *order: Any) -> Any:
        asked.append(step.__name__)
        return ask(session, step, *order)

    monkeypatch.setattr(Session, "ask", counting)
    return asked


class Press:
    """A callback in which the user presses Ctrl-C, or which stops the solve, at one step."""

    def __init__(self, at: int, stops: bool = False) -> None:
        self.at = at
        self.stops = stops
        self.seen: list[fp.solvers.Progress] = []

    def __call__(self, progress: fp.solvers.Progress) -> bool:
        self.seen.append(progress)
        if len(self.seen) != self.at:
            return False
        if self.stops:
            return True
        raise KeyboardInterrupt


def solve(make: Callable[[], fp.FederatedProblem], **options: Any) -> fp.Solution:
    return fp.solve(make(), **{"tol": TOL, "max_rounds": LIMIT, **options})


def assert_best(asked: fp.FederatedProblem, found: fp.Solution) -> None:
    """The certificate is that of the point given back, and no point of the history was better."""
    again = fp.certify(asked, found.w, found.multipliers)
    np.testing.assert_allclose(again.worst, found.certificate.worst, rtol=1e-6, atol=1e-12)
    judged = [max(record.stationarity, record.feasibility) for record in found.history.outer]
    assert found.certificate.worst <= min(judged, default=np.inf) * (1 + 1e-9)


def assert_stops_at_every_step(make: Callable[[], fp.FederatedProblem], first: int, stride: int, stops: bool) -> None:
    everything = Press(0)
    solve(make, callbacks=[everything])
    for at in range(first, len(everything.seen) + 1, stride):
        press = Press(at, stops)
        found = solve(make, callbacks=[press])
        assert len(press.seen) == at  # not one step more
        assert found.status == "interrupted" or found.certificate.meets(found.tol), (at, found.status)
        if make is not uneven:  # its history is in units of its own
            assert_best(make(), found)


@pytest.mark.parametrize("stops", [False, True])
@each_problem
def test_whoever_stops_a_solve_stops_all_of_it(make: Callable[[], fp.FederatedProblem], stops: bool) -> None:
    assert_stops_at_every_step(make, first=5, stride=24, stops=stops)


@pytest.mark.slow
@each_problem
def test_ctrl_c_at_every_step_ends_the_solve(make: Callable[[], fp.FederatedProblem]) -> None:
    assert_stops_at_every_step(make, first=1, stride=1, stops=False)


@pytest.mark.parametrize("at", slow_but(range(8, LIMIT, 13), 8, 60, 99))
@each_problem
def test_no_solve_takes_more_exchanges_than_it_may(
    make: Callable[[], fp.FederatedProblem], at: int, exchanges: list[str]
) -> None:
    make()
    for options in ({}, {"engine": "threads"}, {"secure_sum": True}):
        exchanges.clear()
        found = solve(make, max_rounds=at, **options)
        assert found.rounds == found.communication.rounds == len(exchanges) <= at


@pytest.mark.ray
@pytest.mark.xdist_group("ray")
@each_problem
def test_nor_does_one_by_ray(make: Callable[[], fp.FederatedProblem], exchanges: list[str], ray_cluster: str) -> None:
    make()
    for at in (8, 50):
        exchanges.clear()
        found = solve(make, max_rounds=at, engine="ray")
        assert found.rounds == len(exchanges) <= at


def test_the_problems_need_a_rescue_and_methods_that_go_on() -> None:
    rescued = solve(touching_loss)
    assert any("a feasibility problem was solved in between" in note for note in rescued.history.notes)
    assert any("goes on" in note for note in rescued.history.notes)
    assert any("goes on" in note for note in solve(bent).history.notes)
    assert any("units of the problem's own" in note for note in solve(uneven).history.notes)


def test_what_is_told_goes_forward_through_all_of_it() -> None:
    everything = Press(0)
    found = solve(touching_loss, callbacks=[everything])
    for what in ("iteration", "rounds", "bytes"):
        told = [getattr(progress, what) for progress in everything.seen]
        assert told == sorted(told), what
        written = [getattr(record, what) for record in found.history.outer]
        assert written == sorted(written), what
    assert everything.seen[-1].rounds <= found.rounds <= LIMIT


@pytest.mark.parametrize("at", [5, 60, 120])
def test_a_callback_that_fails_is_not_swallowed(at: int) -> None:
    seen: list[int] = []

    def fail(progress: fp.solvers.Progress) -> None:
        seen.append(progress.iteration)
        if len(seen) == at:
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        solve(touching_loss, callbacks=[fail])
    assert len(seen) == at


def test_a_local_step_ends_where_no_decrease_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a billionth were taken for a decrease that is rounding: 630,000 evaluations in 18 exchanges."""
    evaluated = 0
    expand = LogisticLoss.expand

    def counting(loss: LogisticLoss, w: np.ndarray) -> Any:
        nonlocal evaluated
        evaluated += 1
        return expand(loss, w)

    monkeypatch.setattr(LogisticLoss, "expand", counting)
    fp.solve(touching_loss(), "accelerated", tol=TOL, max_rounds=20)
    assert 0 < evaluated < 20_000
