"""Local resolvents against closed forms, with their evaluations counted; operators, Blocks, problems of operators."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest
from raising import raises_code
from scipy.special import expit

import fedpact as fp
from fedpact.errors import OptionError, ProblemError
from fedpact.functions import Affine, Function, Linear, LogisticLoss, Operator, Quadratic, Saddle, Smooth
from fedpact.problem import MinimaxProblem, MonotoneProblem
from fedpact.prox import L1, Blocks, Box, Simplex, SquaredL2, Zero
from fedpact.solvers.local.resolvent import (
    DENSE_LIMIT,
    NAMES,
    Resolved,
    Subproblem,
    default_solver,
    estimate_lipschitz,
    resolvent,
    seems_monotone,
)

D = 6
rng = np.random.default_rng(0)
ROOT = rng.standard_normal((D, D))
A, B = ROOT @ ROOT.T / D + 0.05 * np.eye(D), rng.standard_normal(D)
SKEW = rng.standard_normal((D, D))
SKEW = SKEW - SKEW.T
X, Y = rng.standard_normal((30, D)), (rng.random(30) < 0.4).astype(float)
S, START = rng.standard_normal(D), rng.standard_normal(D)
SCALE, GAMMA = 3.0, 0.7


class TooManyCalls(AssertionError):
    pass


class Counting(Function):
    """A function, or an operator, that counts, and does not let itself be called for ever."""

    def __init__(self, inner: Function, most: int = 20_000) -> None:
        self.inner, self.dim, self.most = inner, inner.dim, most
        self.has_hessian, self.gradient_field = inner.has_hessian, inner.gradient_field
        self.gradients = self.hessians = 0

    def value_and_gradient(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        self.gradients += 1
        if self.gradients > self.most:
            raise TooManyCalls
        return self.inner.value_and_gradient(w)

    def hessian(self, w: np.ndarray) -> np.ndarray:
        self.hessians += 1
        return self.inner.hessian(w)


def linear_answer(M: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.linalg.solve(np.eye(D) + GAMMA * SCALE * M, S - GAMMA * SCALE * q)


def logistic_answer() -> np.ndarray:
    """Newton's method in plain NumPy, to rounding."""
    x = np.zeros(D)
    for _ in range(30):
        p = expit(X @ x)
        rest = SCALE * X.T @ (p - Y) / 30 + (x - S) / GAMMA
        x = x - np.linalg.solve(SCALE * (X.T * (p * (1 - p))) @ X / 30 + np.eye(D) / GAMMA, rest)
    return x


def first_order(function: Function) -> Smooth:
    return Smooth(function.value_and_gradient, dim=D)


#: function, its resolvent at S for SCALE and GAMMA, and the solvers that may be used
CASES: dict[str, tuple[Function, np.ndarray, tuple[str, ...]]] = {
    "quadratic": (Quadratic(A, B), linear_answer(A, B), NAMES),
    "singular quadratic": (
        Quadratic(np.diag([1.0, 2, 0, 0, 0, 3]), B),
        linear_answer(np.diag([1.0, 2, 0, 0, 0, 3]), B),
        NAMES,
    ),
    "linear function": (Quadratic(np.zeros((D, D)), B), S - GAMMA * SCALE * B, NAMES),
    "logistic": (LogisticLoss(X, Y), logistic_answer(), NAMES),
    "logistic, no Hessian": (
        first_order(LogisticLoss(X, Y)),
        logistic_answer(),
        ("gradient", "agd", "lbfgs", "extragradient"),
    ),
    "symmetric operator": (Linear(A, B), linear_answer(A, B), ("gradient", "extragradient", "newton")),
    "monotone operator": (Linear(0.2 * A + SKEW, B), linear_answer(0.2 * A + SKEW, B), ("extragradient", "newton")),
    "skew operator": (Linear(SKEW, B), linear_answer(SKEW, B), ("extragradient", "newton")),
    "skew operator, no Jacobian": (
        Operator(lambda x: SKEW @ x + B, dim=D),
        linear_answer(SKEW, B),
        ("extragradient",),
    ),
}
PAIRS = [(name, solver) for name, (_, _, solvers) in CASES.items() for solver in solvers]
every_pair = pytest.mark.parametrize(("name", "solver"), PAIRS)


def subproblem(function: Function, lipschitz: float | None = None) -> Subproblem:
    L = estimate_lipschitz(function, SCALE, START) if lipschitz is None else lipschitz
    return Subproblem(function, SCALE, S, GAMMA, L)


def run(problem: Subproblem, solver: str, steps: int, target: float = 0.0, x: np.ndarray = START) -> Resolved:
    """From x, whose image does not count."""
    return resolvent(problem, x, SCALE * problem.function.gradient(x), solver, steps, target)


# ------------------------------------------------------------------------------------------------------- right answers


@every_pair
def test_the_resolvent_is_reached(name: str, solver: str) -> None:
    function, answer, _ = CASES[name]
    problem = subproblem(function)
    found = run(problem, solver, 3000, 1e-11)
    for _ in range(3):  # L-BFGS, which looks at values, may need a fresh start
        found = resolvent(problem, found.x, found.image, solver, 50, 1e-11)
    np.testing.assert_allclose(found.x, answer, atol=1e-9)
    assert found.gap <= 1e-9


@every_pair
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_image_gap_and_counts_are_what_they_say(name: str, solver: str, steps: int) -> None:
    function = Counting(CASES[name][0])
    problem = subproblem(function)
    image = SCALE * function.gradient(START)
    function.gradients = function.hessians = 0
    found = resolvent(problem, START, image, solver, steps)
    assert (found.gradients, found.hessians) == (function.gradients, function.hessians)
    np.testing.assert_allclose(found.image, SCALE * function.gradient(found.x), rtol=1e-12, atol=1e-12)
    assert found.gap == pytest.approx(np.linalg.norm(S - GAMMA * found.image - found.x), rel=1e-6, abs=1e-14)
    assert found.gap < np.linalg.norm(S - GAMMA * image - START)


@pytest.mark.parametrize(("solver", "each"), [("gradient", 1), ("agd", 1), ("extragradient", 2), ("newton", 1)])
def test_evaluations_of_a_step(solver: str, each: int) -> None:
    """With L large enough, and for Newton on a logistic loss near enough, no step is taken twice."""
    function = Counting(LogisticLoss(X, Y))
    found = run(subproblem(function, 10.0), solver, 3)
    assert found.gradients == 3 * each
    assert found.hessians == (3 if solver == "newton" else 0)


def test_one_newton_step_solves_what_is_linear() -> None:
    for function, answer in ((Quadratic(A, B), linear_answer(A, B)), (Linear(SKEW, B), linear_answer(SKEW, B))):
        found = run(subproblem(function), "newton", 1)
        np.testing.assert_allclose(found.x, answer, atol=1e-13)
        assert (found.gradients, found.hessians) == (1, 1)


@every_pair
def test_a_target_ends_it_sooner(name: str, solver: str) -> None:
    function = CASES[name][0]
    near, nearer = (run(subproblem(function), solver, 3000, target) for target in (1e-2, 1e-7))
    assert near.gap <= 1e-2
    assert nearer.gap <= 1e-7
    assert near.gradients <= nearer.gradients
    if name == "logistic" and solver != "newton":
        assert near.gradients < nearer.gradients


@pytest.mark.parametrize("solver", ["gradient", "agd", "extragradient", "newton", "lbfgs"])
def test_going_on_after_a_stop_costs_nothing(solver: str) -> None:
    """Three steps and then four cost what seven cost; L-BFGS asks once more, because it needs the value too."""
    function = LogisticLoss(X, Y)
    whole = run(subproblem(function, 10.0), solver, 7)
    first = run(subproblem(function, 10.0), solver, 3)
    again = Subproblem(function, SCALE, S, GAMMA, first.lipschitz)
    second = resolvent(again, first.x, first.image, solver, 4)
    if solver == "lbfgs":
        assert first.gradients + second.gradients >= 7 + 2  # its start, twice
        assert second.gap < first.gap
        return
    assert first.gradients + second.gradients == whole.gradients
    if solver == "agd":  # momentum is lost
        assert second.gap < first.gap
    else:
        np.testing.assert_array_equal(second.x, whole.x)


# ------------------------------------------------------------------------------------------------------------------- L


@pytest.mark.parametrize("solver", ["gradient", "agd", "extragradient"])
@pytest.mark.parametrize("name", ["quadratic", "logistic", "symmetric operator", "skew operator"])
@pytest.mark.parametrize("part", [1e-6, 0.01, 0.4])
def test_an_l_that_is_too_small_is_found_and_raised(name: str, solver: str, part: float) -> None:
    function, answer, solvers = CASES[name]
    if solver not in solvers:
        with pytest.raises(OptionError) if solver == "agd" else pytest.raises(AssertionError):
            np.testing.assert_allclose(run(subproblem(function, 1.0), solver, 300, 1e-11).x, answer, atol=1e-9)
        return
    curvature = SCALE * np.linalg.norm(function.hessian(answer), 2)
    found = run(subproblem(function, part * curvature), solver, 3000, 1e-11)
    np.testing.assert_allclose(found.x, answer, atol=1e-9)
    assert part * curvature < found.lipschitz <= 4 * curvature


@pytest.mark.parametrize("solver", ["gradient", "agd", "extragradient"])
def test_rounding_does_not_raise_l(solver: str) -> None:
    """Long after convergence F(x) - F(x') is noise, which must not be taken for curvature: L is kept between rounds."""
    large = 1e3 * np.ones(D)
    function = Smooth(lambda w: (0.0, A @ (w - large) + 1e4 * np.sin(1e-4 * (w - large))), dim=D)
    curvature = SCALE * np.linalg.norm(A + np.eye(D), 2)
    state = run(subproblem(function, 1.1 * curvature), solver, 50)
    for _ in range(60):
        again = Subproblem(function, SCALE, S, GAMMA, state.lipschitz)
        state = resolvent(again, state.x, state.image, solver, 20)
    assert state.gap <= 1e-11
    assert state.lipschitz == 1.1 * curvature


def test_newton_at_rounding_does_not_search_on_and_on() -> None:
    function = LogisticLoss(X, Y)
    there = run(subproblem(function), "newton", 30)
    again = resolvent(subproblem(function), there.x, there.image, "newton", 1)
    assert again.gradients <= 4
    assert again.gap <= 1e-14


def test_the_first_guess_of_l() -> None:
    assert estimate_lipschitz(Quadratic(A, B), 2.0, START) == pytest.approx(2.1 * np.linalg.norm(A, 2), rel=0.15)
    assert estimate_lipschitz(Linear(SKEW, B), 1.0, START) == pytest.approx(1.05 * np.linalg.norm(SKEW, 2), rel=0.2)
    plain = estimate_lipschitz(first_order(Quadratic(A, B)), 2.0, START)
    assert 0.5 * np.linalg.norm(A, 2) < plain < 2.2 * np.linalg.norm(A, 2)
    assert estimate_lipschitz(Quadratic(np.zeros((D, D)), B), 2.0, START) == 1.0
    function = Counting(first_order(Quadratic(A, B)))
    estimate_lipschitz(function, 1.0, START)
    assert function.gradients == 4
    edge = Smooth(lambda w: (0.0, np.where(np.abs(w - START) > 0, np.nan, 1.0)), dim=D)
    assert estimate_lipschitz(edge, 1.0, START) == 1.0


# ------------------------------------------------------------------------------------------------- what can go wrong


def beyond(limit: float, value: float) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """A quadratic that is not finite where a coordinate exceeds the limit."""

    def fun(w: np.ndarray) -> tuple[float, np.ndarray]:
        bad = np.any(w > limit)
        return (value if bad else float(0.5 * w @ w - 40 * w.sum())), np.full(D, value) if bad else w - 40

    return fun


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("limit", [-9.0, 1e-9, 1.0])
@pytest.mark.parametrize("solver", NAMES)
def test_functions_that_are_not_finite_do_not_hang(solver: str, limit: float, value: float) -> None:
    """limit -9: nowhere near the start; 1e-9: at the start but at no point ahead; 1: after some steps."""
    inner = Smooth(beyond(limit, value), hess=lambda w: np.eye(D), dim=D)
    function = Counting(inner, most=3000)
    start = np.zeros(D)
    found = resolvent(subproblem(function, 3.0), start, SCALE * inner.gradient(start), solver, 20)
    assert function.gradients < 3000
    assert np.all(np.isfinite(found.x))
    if limit == -9:
        assert not np.all(np.isfinite(found.image))  # the owner's reply is refused by it
        np.testing.assert_array_equal(found.x, start)
    elif solver != "lbfgs":  # whose points are SciPy's
        assert np.all(np.isfinite(found.image))
        assert np.all(found.x <= limit)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("solver", ["gradient", "agd", "extragradient", "newton"])
def test_a_gradient_that_jumps_does_not_hang_and_leaves_l_usable(solver: str) -> None:
    jump = Smooth(lambda w: (0.0, 2 * w + 5 * np.sign(w - 0.1)), hess=lambda w: 2 * np.eye(D), dim=D)
    function = Counting(jump)
    found = resolvent(subproblem(function, 6.0), np.ones(D), SCALE * jump.gradient(np.ones(D)), solver, 30)
    assert np.all(np.isfinite(found.x))
    assert np.isfinite(found.lipschitz)


def test_solvers_that_cannot_be_used_are_refused_with_a_remedy() -> None:
    for function, remedy in ((first_order(LogisticLoss(X, Y)), "agd"), (Operator(lambda x: x, dim=D), "extragradient")):
        with pytest.raises(OptionError, match=f'"{remedy}"') as caught:
            run(subproblem(function, 1.0), "newton", 1)
        assert caught.value.code == "FP-OPTION-201"
    for solver in ("agd", "lbfgs"):
        with pytest.raises(OptionError, match='"extragradient" or "newton"') as caught:
            run(subproblem(Linear(SKEW), 1.0), solver, 1)
        assert caught.value.code == "FP-OPTION-202"


@pytest.mark.parametrize("solver", ["gradient", "agd", "extragradient"])
def test_a_path_that_leads_away_is_left_and_reported(solver: str) -> None:
    """F(x) = -9 x: with 1 / gamma = 1.4, r has no zero that these can reach. The start is the nearest point."""
    function = Counting(Smooth(lambda w: (float(-1.5 * w @ w), -3 * w), dim=D))
    found = run(subproblem(function, 9.0), solver, 10_000)
    np.testing.assert_array_equal(found.x, START)
    assert not found.monotone
    assert function.gradients < 300
    assert run(subproblem(Quadratic(A, B)), solver, 50).monotone


def test_monotone_is_judged_above_rounding_only() -> None:
    function, local = Linear(1e3 * SKEW, B), np.random.default_rng(2)
    for size in 10.0 ** np.arange(-15, 3):
        for _ in range(5):
            x = local.standard_normal(D)
            other = x + size * local.standard_normal(D)
            assert seems_monotone(x, function.gradient(x), other, function.gradient(other), 1e3)
            if size > 1e-6:
                assert not seems_monotone(x, -x, other, -other, 1.0)


def test_lbfgs_goes_on_where_values_are_equal_to_rounding() -> None:
    """1e8 is added to the function: SciPy, which compares values, ends with gradients of 1e-4 or so."""
    loss = LogisticLoss(X, Y)
    raised = Smooth(lambda w: (loss.value(w) + 1e8, loss.gradient(w)), dim=D)
    problem = subproblem(raised, 10.0)
    found = run(problem, "lbfgs", 100)
    for _ in range(8):
        found = resolvent(problem, found.x, found.image, "lbfgs", 30)
    np.testing.assert_allclose(found.x, logistic_answer(), atol=1e-9)


def test_the_default_solver() -> None:
    assert default_solver(Quadratic(A), D) == "newton"
    assert default_solver(Quadratic(A), DENSE_LIMIT + 1) == "agd"
    assert default_solver(first_order(Quadratic(A)), D) == "agd"
    assert default_solver(Linear(A), D) == "newton"
    assert default_solver(Operator(lambda x: x), D) == default_solver(Linear(A), DENSE_LIMIT + 1) == "extragradient"


# ----------------------------------------------------------------------------------------------------------- operators


def wavy(u: np.ndarray, v: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Convex in u, concave in v."""
    k = np.arange(6.0).reshape(2, 3) - 2
    value = np.logaddexp(0, u).sum() + u @ k @ v - 0.5 * v @ v - np.logaddexp(0, v).sum()
    return value, expit(u) + k @ v, k.T @ u - v - expit(v)


def wavy_jacobian(x: np.ndarray) -> np.ndarray:
    k, (u, v) = np.arange(6.0).reshape(2, 3) - 2, (x[:2], x[2:])
    return np.block([[np.diag(expit(u) * expit(-u)), k], [-k.T, np.eye(3) + np.diag(expit(v) * expit(-v))]])


def test_saddle_signs_against_finite_differences() -> None:
    saddle = Saddle(wavy, 2, jac=wavy_jacobian, dim=5)
    x, step = np.random.default_rng(1).standard_normal(5), 1e-6
    x.setflags(write=False)
    slopes = [(wavy(*np.split(x + step * e, [2]))[0] - wavy(*np.split(x - step * e, [2]))[0]) for e in np.eye(5)]
    expected = np.array(slopes) / (2 * step) * [1, 1, -1, -1, -1]
    value, image = saddle.value_and_gradient(x)
    np.testing.assert_allclose(image, expected, atol=1e-8)
    assert value == wavy(x[:2], x[2:])[0]
    columns = [(saddle.gradient(x + step * e) - saddle.gradient(x - step * e)) / (2 * step) for e in np.eye(5)]
    np.testing.assert_allclose(saddle.hessian(x), np.array(columns).T, atol=1e-7)
    np.testing.assert_allclose(saddle.hessian_product(x, image), saddle.hessian(x) @ image)
    assert np.linalg.eigvalsh(saddle.hessian(x) + saddle.hessian(x).T)[0] >= 0  # monotone


@pytest.mark.parametrize(
    "operator",
    [Linear(SKEW, B), Saddle(wavy, 2, jac=wavy_jacobian, dim=5), Operator(np.tanh, dim=3)],
    ids=["linear", "saddle", "operator"],
)
def test_operators_travel_and_stand_where_functions_stand(operator: Operator) -> None:
    assert operator.dim is not None
    assert not operator.gradient_field
    x = np.linspace(-1, 1, operator.dim)
    copy = pickle.loads(pickle.dumps(operator))
    np.testing.assert_array_equal(copy.gradient(x), operator.gradient(x))
    assert copy.value(x) == operator.value(x)
    if operator.has_hessian:
        np.testing.assert_array_equal(copy.hessian(x), operator.hessian(x))
    else:
        with pytest.raises(TypeError, match="has no Hessian"):
            operator.hessian(x)
    assert operator.defect() is None
    assert len(repr(operator)) < 80


@pytest.mark.parametrize(
    "use",
    [
        lambda f, g: f + g,
        lambda f, g: g + f,
        lambda f, g: f + 1,
        lambda f, g: 1 + f,
        lambda f, g: f - g,
        lambda f, g: g - f,
        lambda f, g: 1 - f,
        lambda f, g: -f,
        lambda f, g: 2 * f,
        lambda f, g: f * 2,
        lambda f, g: np.float64(2) * f,
        lambda f, g: f / 2,
        lambda f, g: sum([f, f]),
        lambda f, g: sum([g, f]),
    ],
    ids=["f+g", "g+f", "f+1", "1+f", "f-g", "g-f", "1-f", "-f", "2f", "f2", "float64", "f/2", "sum", "sum with g"],
)
@pytest.mark.parametrize("operator", [Linear(SKEW), Saddle(wavy, 2, dim=6)], ids=["linear", "saddle"])
def test_operators_refuse_arithmetic(operator: Operator, use: Callable[[object, object], object]) -> None:
    """A sum would forget that it is no gradient, and a saddle times -1 is no saddle."""
    with raises_code("FP-PROBLEM-159"):
        use(operator, Quadratic(A, B))


def test_an_operator_is_no_constraint() -> None:
    with raises_code("FP-PROBLEM-165"):
        fp.Constraint(Saddle(wavy, 2, dim=5), fp.cones.Nonnegative(1))


@pytest.mark.parametrize(
    ("make", "code", "facts"),
    [
        (lambda: Linear(np.ones((2, 3))), "FP-PROBLEM-152", ["Linear: M ", "(2, 3)"]),
        (lambda: Linear(np.eye(2), np.ones(3)), "FP-PROBLEM-153", ["Linear: q has shape (3,)", "(2,)"]),
        (lambda: Saddle(wavy, -1), "FP-PROBLEM-156", ["Saddle: split = -1"]),
        (lambda: Saddle(wavy, 2.5), "FP-PROBLEM-156", ["Saddle: split = 2.5"]),
        (lambda: Saddle(wavy, 7, dim=5), "FP-PROBLEM-156", ["Saddle: split = 7", "at most 5"]),
        (
            lambda: Saddle(lambda u, v: (0.0, u), 2).gradient(np.ones(4)),
            "FP-PROBLEM-157",
            ["Saddle: fun returned 2 items", "(value, gradient in u, gradient in v)"],
        ),
        (lambda: Saddle(lambda u, v: (0.0, v, u), 1).gradient(np.ones(4)), "FP-PROBLEM-158", ["", "in u has"]),
        (lambda: Saddle(lambda u, v: (0.0, u, u), 1).gradient(np.ones(4)), "FP-PROBLEM-158", ["", "in v has"]),
        (lambda: Operator(lambda x: x[:1]).gradient(np.ones(4)), "FP-PROBLEM-158", ["Operator: the value of fun"]),
        (lambda: Operator(lambda x: x, jac=lambda x: x).hessian(np.ones(4)), "FP-PROBLEM-158", ["Operator: "]),
    ],
    ids=["square", "q", "negative", "fraction", "long", "pair", "u", "v", "image", "jacobian"],
)
def test_operators_say_what_is_wrong(make: Callable[[], object], code: str, facts: list[str]) -> None:
    with raises_code(code, *facts):
        make()


# -------------------------------------------------------------------------------------------------------------- Blocks


@pytest.mark.parametrize("saddle", [False, True])
def test_blocks_are_their_parts(saddle: bool) -> None:
    """The rest of the contract is checked in tests/prox, where a Blocks that adds is on the list."""
    first, second, w = L1(0.4), SquaredL2(2.0), np.array([1.0, -2.0, 3.0, 0.5])
    h = Blocks(first, second, 1, saddle=saddle)
    sign = -1 if saddle else 1
    assert h.value(w) == pytest.approx(first.value(w[:1]) + sign * second.value(w[1:]))
    np.testing.assert_array_equal(h.prox(w, 0.7), np.concatenate([first.prox(w[:1], 0.7), second.prox(w[1:], 0.7)]))
    v = np.array([0.1, 0.2, -0.3, 5.0])
    parts = first.subdifferential_distance(v[:1], w[:1]), second.subdifferential_distance(v[1:], w[1:])
    assert h.subdifferential_distance(v, w) == max(parts) > min(parts)


def test_blocks_of_sets_have_one_domain_for_both_signs() -> None:
    for saddle in (False, True):
        h = Blocks(Simplex(), Box(0, 1), 2, saddle=saddle)
        assert h.indicator
        assert h.contains(np.array([0.5, 0.5, 0.2]))
        assert h.value(np.array([0.5, 0.5, 1.2])) == np.inf
        assert h.value(np.array([0.5, 0.6, 0.2])) == np.inf
    assert not Blocks(Box(0, 1), L1(1.0), 2).indicator


def test_blocks_tell_what_does_not_fit() -> None:
    with raises_code("FP-PROBLEM-185", "Blocks: the second part", "float"):
        Blocks(Zero(), 0.5, 2)
    assert "split = 5 does not lie between 0 and the 4 coordinates" in str(Blocks(Zero(), Zero(), 5).defect(4))
    assert Blocks(Box(np.zeros(2), np.ones(2)), Zero(), 2).defect(4) is None
    assert Blocks(Box(np.zeros(3), np.ones(3)), Zero(), 2).defect(4) is not None
    assert Blocks(Zero(), Box(np.zeros(3), np.ones(3)), 2).defect(4) is not None


# ------------------------------------------------------------------------------------------------ problems of operators


def test_problems_of_operators_carry_their_parts() -> None:
    problem = MinimaxProblem([Saddle(wavy, 2, dim=5), fp.Share(Saddle(wavy, 2), name="north")], L1(0.1), Box(-1, 1))
    assert problem.names == ("client 1", "north")
    assert problem.monotone
    assert (problem.split, problem.dim) == (2, 5)
    w = np.array([1.0, -2.0, 0.1, 0.2, 0.3])
    assert problem.regularizer.value(w) == pytest.approx(0.3)
    judged = fp.certify(problem, w, [None, None, None])
    image = 2 * Saddle(wavy, 2).gradient(w)
    image[:2] += 0.1 * np.sign(w[:2])
    assert judged.stationarity == pytest.approx(np.max(np.abs(image)))
    mixed = MonotoneProblem(
        [Linear(SKEW), Quadratic(A), fp.Share(Quadratic(A), name="south")]
    )  # gradients are monotone
    assert mixed.names == ("client 1", "client 2", "south")


constraint = fp.Constraint(Affine(np.ones((1, 5))), fp.cones.Nonnegative(1))
SADDLE = Saddle(wavy, 2, dim=5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MonotoneProblem([]), "at least one share"),
        (lambda: MinimaxProblem([]), "at least one share"),
        (lambda: MonotoneProblem([Linear(SKEW), 3]), "client 2: the objective must be one of fedpact.functions"),
        (lambda: MonotoneProblem([fp.Share(SADDLE, constraint, name="north")]), "north: .*operators only; a set"),
        (lambda: MonotoneProblem([Linear(SKEW), fp.Share(None, constraint)]), "client 2: .*operators only; a set"),
        (lambda: MonotoneProblem([Linear(np.eye(2)), Linear(np.eye(3))]), "client 2: .*length 3.*length 2"),
        (lambda: MinimaxProblem([SADDLE, Quadratic(A)]), "client 2: .*got Quadratic; wrap a callable as .*Saddle"),
        (lambda: MinimaxProblem([fp.Share(Linear(SKEW), name="north")]), "north: .*got Linear"),
        (lambda: MinimaxProblem([fp.Share(None, constraint, name="north")]), "north: .*got NoneType"),
        (
            lambda: MinimaxProblem([SADDLE, fp.Share(Saddle(wavy, 3, dim=5), name="north")]),
            "north: its u has length 3, that of client 1 2; all owners must split w alike",
        ),
        (lambda: MinimaxProblem([SADDLE], Box(np.zeros(3), np.ones(3))), "regularizer: "),
        (lambda: MinimaxProblem([SADDLE], None, "box"), "the maximizer must be one of fedpact.prox, got str"),
        (lambda: MinimaxProblem([SADDLE, SADDLE], "box"), "the minimizer must be one of fedpact.prox, got str"),
        (
            lambda: fp.FederatedProblem([fp.Share(SADDLE, name="north")]),
            "north: holds an operator; give operators to MonotoneProblem or MinimaxProblem",
        ),
        (
            lambda: fp.FederatedProblem([fp.Share(Quadratic(A))], fp.Share(Linear(SKEW))),
            "server: holds an operator; give operators to MonotoneProblem or MinimaxProblem",
        ),
    ],
    ids=[
        "empty", "empty minimax", "a number", "constraint", "no operator", "dimensions", "no saddle", "linear",
        "nothing", "splits", "minimizer", "no prox", "no prox for u", "owner", "server",
    ],
)  # fmt: skip
def test_problems_of_operators_name_owner_and_remedy(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        make()


def test_data_of_operators_is_checked_before_any_round() -> None:
    with raises_code("FP-DATA-100", "north: objective Linear", "q has 1 NaN", "position 1"):
        MonotoneProblem([Linear(np.eye(2)), fp.Share(Linear(np.eye(2), [1.0, np.nan]), name="north")])
