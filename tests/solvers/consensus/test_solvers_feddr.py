"""FedDR and FedSplit against their papers, against iFedDR, and against closed forms; and FedDR's stall."""

from typing import Any

import numpy as np
import pytest
from averaging_cases import Quadratics, Watching, logistic, quadratics

import fedpact as fp
from fedpact.errors import OptionError
from fedpact.functions import Linear, LogisticLoss, Quadratic
from fedpact.problem import MonotoneProblem

CASE = quadratics(4)
GAMMA = 2 / CASE.lipschitz


def tran_dinh(
    case: Quadratics, samples: list[tuple[str, ...]], gamma: float, alpha: float, h: fp.prox.Prox
) -> list[np.ndarray]:
    """FedDR, Algorithm 1, with exact proximal maps and the samples given; the x-bar of every round.

    Only the start differs: y_i = x0 + gamma F_i(x0), whose proximal map is x0 = 0.
    """
    n = case.owners
    y = np.array([gamma * case.image(i, np.zeros(case.dim)) for i in range(n)])
    x = np.array([case.resolvent(i, gamma, y[i]) for i in range(n)])
    np.testing.assert_allclose(x, 0, atol=1e-14)
    hat = 2 * x - y
    tilde = hat.mean(0)
    bar, path = h.prox(tilde, gamma), []
    for sample in samples:
        path.append(bar)
        for i in (int(name.split()[-1]) - 1 for name in sample):
            y[i] = y[i] + alpha * (bar - x[i])
            x[i] = case.resolvent(i, gamma, y[i])
            before, hat[i] = hat[i].copy(), 2 * x[i] - y[i]
            tilde = tilde + (hat[i] - before) / n
        bar = h.prox(tilde, gamma)
    return path


@pytest.mark.parametrize("h", [fp.prox.Zero(), fp.prox.L1(0.4), fp.prox.SquaredL2(0.5)], ids=["none", "l1", "l2"])
@pytest.mark.parametrize("participation", [1.0, 0.4])
@pytest.mark.parametrize("relaxation", [1.0, 1.8])
def test_iterates_are_those_of_tran_dinh(relaxation: float, participation: float, h: fp.prox.Prox) -> None:
    watch = Watching()
    options = {"gamma": GAMMA, "relaxation": relaxation, "participation": participation}
    fp.solve(CASE.problem(h), "feddr", tol=1e-12, max_rounds=40, engine=watch, **options)
    path = tran_dinh(CASE, watch.samples(), GAMMA, relaxation, h)
    assert len(path) > 25
    assert {len(sample) for sample in watch.samples()} == {round(5 * participation)}
    np.testing.assert_allclose(watch.iterates("p"), path, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("problem", "gamma"),
    [(CASE.problem(), GAMMA), (CASE.problem(fp.prox.L1(0.4)), GAMMA), (logistic(1), 0.5)],
    ids=["quadratic", "quadratic with l1", "logistic"],
)
def test_with_exact_resolvents_it_is_ifeddr(problem: fp.FederatedProblem, gamma: float) -> None:
    """iFedDR's step alpha is then 1, and its mean of x - gamma F_i(x) the mean of 2 x - s."""
    options = {"gamma": gamma, "relaxation": 1.0, "steps": 12, "local_solver": "newton", "max_rounds": 45}
    plain, inexact = Watching(), Watching()
    fp.solve(problem, "feddr", tol=1e-9, engine=plain, **options)
    found = fp.solve(problem, "ifeddr", tol=1e-9, engine=inexact, refinement="repeat", **options)
    assert all(r.alpha == pytest.approx(1.0, abs=1e-6) for r in found.history.local[:10])
    ours, theirs = plain.iterates("p"), inexact.iterates("p")
    count = min(len(ours), len(theirs))
    assert count > 20
    np.testing.assert_allclose(ours[:count], theirs[:count], rtol=0, atol=1e-9)


@pytest.mark.parametrize("solver", ["gradient", "agd", "lbfgs", "newton", "extragradient"])
def test_every_local_solver_reaches_the_optimum(solver: str) -> None:
    found = fp.solve(CASE.problem(), "feddr", local_solver=solver, tol=1e-9, max_rounds=2000)
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, CASE.optimum(), rtol=0, atol=1e-8)


def test_with_l1_it_reaches_the_soft_threshold() -> None:
    rng = np.random.default_rng(6)
    A, b, weight = rng.uniform(0.1, 3.0, (6, 5)), rng.standard_normal((6, 5)), 1.5
    case = Quadratics(np.stack([np.diag(a) for a in A]), b)
    found = fp.solve(case.problem(fp.prox.L1(weight)), "feddr", tol=1e-10)
    slope = b.sum(0)
    expected = -np.sign(slope) * np.maximum(np.abs(slope) - weight, 0) / A.sum(0)
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, expected, rtol=0, atol=1e-8)
    assert np.any(expected == 0)
    assert np.any(expected != 0)


def test_operators_reach_their_common_zero() -> None:
    rng = np.random.default_rng(0)
    matrices = [np.eye(4) + a - a.T for a in rng.standard_normal((5, 4, 4))]
    offsets = rng.standard_normal((5, 4))
    problem = fp.problem.MonotoneProblem([Linear(M, q) for M, q in zip(matrices, offsets, strict=True)])
    for solver in ("newton", "extragradient"):
        found = fp.solve(problem, "feddr", gamma=0.1, local_solver=solver, tol=1e-9, max_rounds=2000)
        assert found.status == "solved"
        np.testing.assert_allclose(found.w, np.linalg.solve(sum(matrices), -offsets.sum(0)), rtol=0, atol=1e-8)


# --------------------------------------------------------------------------------------------------------- the stall


def stretched() -> fp.FederatedProblem:
    """Logistic losses whose columns are of sizes between 1 and 1/100."""
    rng = np.random.default_rng(8)
    shares = []
    for _ in range(4):
        X = (rng.standard_normal((40, 6)) + 2 * rng.standard_normal(6)) * np.logspace(0, -2, 6)
        y = (X @ rng.standard_normal(6) + 0.3 * rng.standard_normal(40) > 0).astype(float)
        shares.append(fp.Share(LogisticLoss(X, y) + Quadratic(1e-2 * np.eye(6))))
    return fp.FederatedProblem(shares)


def test_ten_gradient_steps_stall_when_they_start_at_s_and_not_at_p() -> None:
    """MATH: FedDR's stall is an artefact of starting at s. x_i - p vanishes, x_i - s_i does not."""
    problem = stretched()
    hessians = [4 * share.objective.hessian(np.zeros(6)) for share in problem.shares]  # of F_i
    assert max(np.linalg.cond(hessian) for hessian in hessians) > 100
    options = {"gamma": 5.0, "local_solver": "gradient", "steps": 10, "tol": 1e-6, "max_rounds": 600}
    at_s = fp.solve(problem, "feddr", start="s", **options)
    at_p = fp.solve(problem, "feddr", start="p", **options)
    assert at_p.status == "solved"
    assert at_s.status == "stalled"
    assert "FedDR with a fixed number of local steps stops where the errors of its resolvents leave it" in at_s.reason
    assert at_s.certificate.stationarity > 0.1
    exact = fp.solve(problem, "feddr", start="s", **{**options, "local_solver": "newton"})
    assert exact.status == "solved"  # exact resolvents do not mind where they start


@pytest.mark.slow
def test_a_schedule_of_accuracies_converges_from_s_too() -> None:
    """Tran Dinh et al., Theorem 3.1: errors eps_k that are summable are enough, wherever the local solver starts."""
    problem = stretched()
    options = {"gamma": 5.0, "local_solver": "gradient", "tol": 1e-3, "max_rounds": 600}
    found = fp.solve(problem, "feddr", start="s", accuracy=0.1, **options)
    assert found.status == "solved"
    exact = fp.solve(problem, "interior-point", tol=1e-8)
    assert found.objective == pytest.approx(exact.objective, abs=1e-3)
    work = [sum(record.gradients) for record in found.history.local]
    assert work[-1] > work[0]  # later rounds take more local steps


def test_resolvents_are_as_accurate_as_the_schedule_says() -> None:
    """Round k has |s - gamma F(x) - x| <= accuracy / (k+1)^2 at every owner, in its own state."""
    problem = stretched()
    owners = len(problem.shares)
    gamma = 2.0
    gaps: list[list[float]] = []
    with fp.Session() as session:

        def look(progress: Any) -> None:
            states = session.fleet.states()
            assert states is not None
            if progress.iteration:
                gaps.append([float(np.linalg.norm(one.s - gamma * one.image - one.x)) for one in states.values()])

        fp.solve(
            problem,
            "feddr",
            session=session,
            gamma=gamma,
            accuracy=0.5,
            local_solver="gradient",
            tol=1e-9,
            max_rounds=12,
            callbacks=[look],
        )
    assert len(gaps) >= 6
    assert all(len(each) == owners for each in gaps)
    for k, each in enumerate(gaps[:6]):
        assert max(each) <= 0.5 / (k + 1) ** 2 + 1e-12


# ----------------------------------------------------------------------------------------------------------- FedSplit


def pathak_wainwright(case: Quadratics, s: float, rounds: int, z: np.ndarray) -> list[np.ndarray]:
    """FedSplit, Algorithm 1, with exact proximal updates, from z; the x of every round."""
    x, path = z.mean(0), []
    for _ in range(rounds):
        path.append(x)
        half = np.array([case.resolvent(j, s, 2 * x - z[j]) for j in range(case.owners)])
        z = z + 2 * (half - x)
        x = z.mean(0)
    return path


def start_of(case: Quadratics, s: float) -> np.ndarray:
    """z_j at our start: 2 x_j - s_j with x_j = 0."""
    return np.array([-s * case.image(j, np.zeros(case.dim)) for j in range(case.owners)])


def test_fedsplit_is_algorithm_1_of_pathak_and_wainwright() -> None:
    watch = Watching()
    fp.solve(CASE.problem(), "fedsplit", gamma=GAMMA, tol=1e-12, max_rounds=30, engine=watch)
    path = pathak_wainwright(CASE, GAMMA, len(watch.orders()), start_of(CASE, GAMMA))
    assert len(path) > 20
    np.testing.assert_allclose(watch.iterates("p"), path, rtol=0, atol=1e-12)


def test_fedsplit_is_feddr_with_relaxation_two() -> None:
    split, relaxed = Watching(), Watching()
    options = {"gamma": GAMMA, "local_solver": "gradient", "steps": 5, "tol": 1e-9, "max_rounds": 30}
    fp.solve(CASE.problem(), "fedsplit", engine=split, **options)
    fp.solve(CASE.problem(), "feddr", relaxation=2 - 1e-14, engine=relaxed, **options)
    assert len(split.iterates("p")) == len(relaxed.iterates("p"))
    np.testing.assert_allclose(split.iterates("p"), relaxed.iterates("p"), rtol=0, atol=1e-11)


def test_fedsplit_has_the_rate_of_its_theorem() -> None:
    """Pathak and Wainwright, Theorem 1, with s = 1 / sqrt(l L) and kappa = L / l.

    x errs by at most rho^t |z - z*| / sqrt(m), rho = 1 - 2 / (sqrt(kappa) + 1).
    """
    ends = np.array([np.linalg.eigvalsh(CASE.owners * A)[[0, -1]] for A in CASE.A])
    low, high = ends[:, 0].min(), ends[:, 1].max()
    gamma, rate = 1 / np.sqrt(low * high), 1 - 2 / (np.sqrt(high / low) + 1)
    watch = Watching()
    found = fp.solve(CASE.problem(), "fedsplit", gamma=gamma, tol=1e-9, engine=watch)
    optimum = CASE.optimum()
    fixed = np.array([optimum - gamma * CASE.image(j, optimum) for j in range(CASE.owners)])
    distance = np.linalg.norm(start_of(CASE, gamma) - fixed) / np.sqrt(CASE.owners)
    errors = np.linalg.norm(watch.iterates("p") - optimum, axis=1)
    assert np.all(errors <= distance * rate ** np.arange(len(errors)) + 1e-12)
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, optimum, rtol=0, atol=1e-8)


def test_fedsplit_takes_a_quadratic_h_in_parts_and_refuses_others() -> None:
    found = fp.solve(CASE.problem(fp.prox.SquaredL2(0.7)), "fedsplit", tol=1e-9)
    np.testing.assert_allclose(found.w, CASE.optimum(ridge=0.7), rtol=0, atol=1e-8)
    with pytest.raises(OptionError, match=r'method "fedsplit" takes no L1\(1\): FedSplit is about smooth functions'):
        fp.solve(CASE.problem(fp.prox.L1(1.0)), "fedsplit")


# ------------------------------------------------------------------------------------------------------------ the rest


def test_the_default_gamma_is_that_of_ifeddr() -> None:
    ours = fp.solve(CASE.problem(), "feddr", max_rounds=10)
    theirs = fp.solve(CASE.problem(), "ifeddr", max_rounds=10)
    assert ours.history.local[0].gamma == pytest.approx(theirs.history.local[0].gamma, rel=1e-12)


def test_history_counts_feddrs_gradients() -> None:
    found = fp.solve(CASE.problem(), "feddr", local_solver="gradient", steps=3, max_rounds=12, tol=1e-12)
    # one at p, which judges it too, and one after every step
    assert {r.gradients for r in found.history.local} == {(4,) * 5}
    residuals = [r.residual for r in found.history.local]
    assert not any(np.isnan(residuals[:-1]))
    assert np.isnan(residuals[-1])  # no exchange is left for another round: the last point is judged instead
    assert found.history.outer[-1].stationarity < found.history.outer[-2].stationarity


class Counting(Quadratic):
    calls = 0

    def value_and_gradient(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        self.calls += 1
        return super().value_and_gradient(w)


EVERY_START = [
    {"local_solver": solver, "start": s} for solver in ("gradient", "newton", "lbfgs") for s in ("p", "last", "s")
]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fedavg", {}),
        ("fedprox", {}),
        ("scaffold", {}),
        ("scaffold", {"option": "I"}),
        *(("feddr", options) for options in EVERY_START),
        ("fedsplit", {"local_solver": "gradient", "start": "p"}),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value.values()),
)
def test_every_evaluation_is_counted(method: str, options: dict[str, str]) -> None:
    functions = [Counting(A, b) for A, b in zip(CASE.A, CASE.b, strict=True)]
    problem = fp.FederatedProblem([fp.Share(f) for f in functions], regularizer=fp.prox.SquaredL2(0.1))
    seen: list[list[int]] = []
    found = fp.solve(
        problem,
        method,
        steps=3,
        tol=1e-12,
        max_rounds=16,
        callbacks=[lambda progress: seen.append([f.calls for f in functions])],
        **options,
    )
    rounds = len(found.history.local)
    spent = np.diff(np.array(seen[: rounds + 1]), axis=0)  # since the start, and without the end
    counted = np.array([record.gradients for record in found.history.local])
    assert rounds > 5
    np.testing.assert_array_equal(spent, counted)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("feddr", {"relaxation": 2}, "relaxation = 2: give a number above 0 and below 2"),
        ("feddr", {"local_solver": "adam"}, "local_solver = 'adam': choose 'gradient', 'agd'"),
        ("feddr", {"start": "x"}, "start = 'x': choose 'p', 'last', 's'"),
        ("feddr", {"steps": 1.5}, "steps = 1.5: give a whole number"),
        ("feddr", {"participation": 1.01}, "participation = 1.01: give a number above 0 and at most 1"),
        ("feddr", {"batch_size": 8}, "method 'feddr' has no option 'batch_size'"),
        ("fedsplit", {"relaxation": 2}, "method 'fedsplit' has no option 'relaxation'"),
        ("fedsplit", {"participation": 0.5}, "method 'fedsplit' has no option 'participation'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_feddr_misuse(method: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        fp.solve(CASE.problem(), method, **options)


def test_the_first_gamma_of_a_skew_operator_is_its_inverse_size() -> None:
    """v' J v is zero for every v there; a gamma from it would be infinite."""
    J = np.array([[0.0, 4.0], [-4.0, 0.0]])
    problem = MonotoneProblem([fp.Share(Linear(J, np.array([1.0, i - 1.0]))) for i in range(3)], fp.prox.Box(-2, 2))
    found = fp.solve(problem, "feddr", tol=1e-8)
    assert found.solved
    assert found.history.local[0].gamma == pytest.approx(1 / 12)  # F_i = 3 J
    np.testing.assert_allclose(J @ found.w, [-1.0, 0.0], atol=1e-8)
