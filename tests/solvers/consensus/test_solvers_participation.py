"""Samples of owners and of rows: drawn by the seed, the same everywhere, and what they do to each method."""

import numpy as np
import pytest
from averaging_cases import Watching, logistic, quadratics
from marks import slow_but

import fedpact as fp
from fedpact.errors import OptionError
from fedpact.functions import Linear, LogisticLoss, Quadratic

CASE = quadratics(7, owners=10, spread=0.3)
METHODS = ["fedavg", "fedprox", "scaffold", "feddr", "ifeddr"]
BATCHED = ["fedavg", "fedprox", "scaffold"]


def trace(problem: fp.FederatedProblem, method: str, threads: int = 1, **options: object) -> Watching:
    watch = Watching(threads)
    fp.solve(problem, method, engine=watch, tol=1e-9, **options)
    return watch


def path(watch: Watching, method: str) -> np.ndarray:
    return watch.iterates("p" if method in ("feddr", "ifeddr") else "w")


# -------------------------------------------------------------------------------------------------- samples of owners


@pytest.mark.parametrize(("participation", "count"), [(0.01, 1), (0.3, 3), (0.55, 6), (0.96, 10), (1.0, 10)])
def test_the_sample_has_the_size_asked_for(participation: float, count: int) -> None:
    samples = trace(CASE.problem(), "fedavg", participation=participation, max_rounds=40).samples()
    assert {len(sample) for sample in samples} == {count}
    order = [f"client {i}" for i in range(1, 11)]
    assert all(list(sample) == [name for name in order if name in sample] for sample in samples)


def test_owners_are_drawn_equally_often() -> None:
    samples = trace(CASE.problem(), "fedavg", participation=0.3, max_rounds=800).samples()
    counts = np.array([sum(f"client {i}" in sample for sample in samples) for i in range(1, 11)])
    expected, deviation = 0.3 * len(samples), np.sqrt(len(samples) * 0.3 * 0.7)
    assert len(samples) > 600
    assert np.all(np.abs(counts - expected) < 4 * deviation)
    pairs = {(a, b) for sample in samples for a in sample for b in sample if a < b}
    assert len(pairs) == 45  # no owner always goes with another


@pytest.mark.parametrize("method", METHODS)
def test_samples_depend_on_the_seed_only(method: str) -> None:
    options = {"participation": 0.4, "max_rounds": 30}
    first, again = (trace(CASE.problem(), method, seed=5, **options) for _ in range(2))
    other = trace(CASE.problem(), method, seed=6, **options)
    threads = trace(CASE.problem(), method, threads=3, seed=5, **options)
    samples, bits = (
        [f(watch) for watch in (first, again, threads, other)]
        for f in (lambda watch: watch.samples(), lambda watch: path(watch, method).tobytes())
    )
    assert samples[0] == samples[1] == samples[2]
    assert samples[0] != samples[3]
    assert samples[0][:15] == trace(logistic(owners=10), "fedavg", seed=5, **options).samples()[:15]
    assert bits[0] == bits[1] == bits[2]
    assert bits[0] != bits[3]


@pytest.mark.parametrize("method", METHODS)
def test_owners_that_are_not_asked_do_nothing(method: str) -> None:
    watch = Watching()
    found = fp.solve(CASE.problem(), method, participation=0.3, max_rounds=20, tol=1e-9, engine=watch)
    names = [f"client {i}" for i in range(1, 11)]
    assert sum(record.refinements for record in found.history.local) == 0
    for record, sample in zip(found.history.local, watch.samples(), strict=True):
        assert [n > 0 for n in record.gradients] == [name in sample for name in names]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("scaffold", {"step_factor": 0.3}),
        ("scaffold", {"step_factor": 0.3, "option": "I"}),
        ("feddr", {}),
        ("ifeddr", {}),
        ("ifeddr", {"local_solver": "gradient"}),
        ("ifeddr", {"local_solver": "gradient", "steps": 1, "gamma": 0.3, "error": 0.5, "refinement": "repeat"}),
    ],
    ids=["scaffold II", "scaffold I", "feddr", "ifeddr", "ifeddr, gradient", "ifeddr, coarse"],
)
@pytest.mark.parametrize("seed", slow_but([0, 1], 0))
def test_few_owners_a_round_still_reach_the_optimum(method: str, options: dict[str, object], seed: int) -> None:
    found = fp.solve(CASE.problem(), method, participation=0.3, tol=1e-9, seed=seed, **options)
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, CASE.optimum(), rtol=0, atol=1e-8)


# ----------------------------------------------------------------------------------------------- iFedDR with a sample


@pytest.mark.parametrize("h", [fp.prox.Zero(), fp.prox.L1(0.5)], ids=["none", "l1"])
def test_sampled_ifeddr_with_exact_resolvents_is_sampled_feddr(h: fp.prox.Prox) -> None:
    """Both are then block-coordinate Douglas-Rachford splitting, and draw the same owners."""
    options = {"gamma": 0.1, "relaxation": 1.0, "steps": 12, "local_solver": "newton", "participation": 0.3}
    inexact = trace(CASE.problem(h), "ifeddr", max_rounds=60, **options)
    plain = trace(CASE.problem(h), "feddr", max_rounds=60, **options)
    count = min(len(inexact.samples()), len(plain.samples()))  # FedDR spends one exchange more on judging
    assert count > 40
    assert inexact.samples()[:count] == plain.samples()[:count]
    np.testing.assert_allclose(path(inexact, "ifeddr")[:count], path(plain, "feddr")[:count], rtol=0, atol=1e-9)


@pytest.mark.parametrize("error", slow_but([0.5, 0.95]))
def test_sampled_ifeddr_keeps_the_test_and_the_step_of_all_owners(error: float) -> None:
    """The test holds over all owners in every round, so alpha >= 1 - sigma, as with everyone."""
    options = {"local_solver": "gradient", "start": "s", "steps": 1, "error": error}
    found = fp.solve(CASE.problem(), "ifeddr", participation=0.3, gamma=0.2, tol=1e-8, **options)
    assert found.status == "solved"
    assert sum(r.refinements for r in found.history.local) > 0
    assert min(r.alpha for r in found.history.local) >= 1 - error - 1e-6
    assert max(abs(r.alpha - 1) for r in found.history.local) > 0.1


def test_sampled_ifeddr_finds_saddle_points() -> None:
    rng = np.random.default_rng(0)
    matrices = [np.eye(4) + a - a.T for a in rng.standard_normal((6, 4, 4))]
    offsets = rng.standard_normal((6, 4))
    problem = fp.problem.MonotoneProblem([Linear(M, q) for M, q in zip(matrices, offsets, strict=True)])
    found = fp.solve(problem, "ifeddr", participation=0.34, gamma=0.1, tol=1e-9)
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, np.linalg.solve(sum(matrices), -offsets.sum(0)), rtol=0, atol=1e-8)


def test_a_sample_of_everyone_is_everyone() -> None:
    for method in ("ifeddr", "feddr", "scaffold"):
        some, everyone = (
            fp.solve(CASE.problem(), method, participation=share, tol=1e-8, max_rounds=20) for share in (0.96, 1.0)
        )
        assert some.w.tobytes() == everyone.w.tobytes()
        assert some.rounds == everyone.rounds


def test_ifeddr_takes_a_share_of_the_owners() -> None:
    with pytest.raises(OptionError, match=r"participation = 1\.5: give a number above 0 and at most 1"):
        fp.solve(CASE.problem(), "ifeddr", participation=1.5)


# ----------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_samples_keep_averages_from_coming_to_rest(method: str) -> None:
    watch = Watching()
    found = fp.solve(CASE.problem(), method, steps=1, participation=0.3, tol=1e-6, max_rounds=200, engine=watch)
    assert found.status == "max_rounds"
    assert "another sample of the owners every round" in found.reason
    assert np.linalg.norm(np.diff(watch.iterates(), axis=0)[-20:], axis=1).min() > 1e-3


def test_sums_that_are_secure_need_everyone() -> None:
    for options in ({"participation": 0.5}, {"batch_size": 3}):  # neither everyone, nor the same order to everyone
        with pytest.raises(OptionError, match="secure_sum=True needs"):
            fp.solve(logistic(), "scaffold", secure_sum=True, **options)


@pytest.mark.parametrize("method", [*METHODS, "fedsplit"])
def test_secure_sums_change_nothing_but_roundings(method: str) -> None:
    plain = fp.solve(CASE.problem(), method, max_rounds=40, tol=1e-9)
    secure = fp.solve(CASE.problem(), method, max_rounds=42, tol=1e-9, secure_sum=True)
    np.testing.assert_allclose(secure.w, plain.w, rtol=0, atol=1e-8)
    assert secure.status == plain.status


# ---------------------------------------------------------------------------------------------------- samples of rows


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("method", BATCHED)
def test_minibatches_depend_on_the_seed_only(method: str, participation: float) -> None:
    options = {"batch_size": 7, "steps": 4, "participation": participation, "max_rounds": 25}
    first, again = (trace(logistic(2), method, seed=3, **options) for _ in range(2))
    other = trace(logistic(2), method, seed=4, **options)
    threads = trace(logistic(2), method, threads=2, seed=3, **options)
    assert first.iterates().tobytes() == again.iterates().tobytes() == threads.iterates().tobytes()
    assert first.iterates().tobytes() != other.iterates().tobytes()


def test_minibatches_are_unbiased_and_differ_between_owners_rounds_and_steps() -> None:
    """With one local step from w0 the mean of the moves over many seeds is the full gradient step."""
    problem, eta = logistic(3, owners=2), 0.1
    moves = []
    for seed in range(300):
        watch = trace(problem, "fedavg", seed=seed, batch_size=5, steps=1, step_size=eta, max_rounds=8)
        moves.append(watch.iterates()[1])
    gradient = sum(share.objective.gradient(np.zeros(3)) for share in problem.shares)
    spread = np.std(moves, axis=0) / np.sqrt(len(moves))
    assert np.all(spread > 0)
    assert np.all(np.abs(np.mean(moves, axis=0) + eta * gradient) < 4 * spread)
    twins = fp.FederatedProblem([fp.Share(problem.shares[0].objective) for _ in range(2)])
    alone = fp.FederatedProblem([fp.Share(2 * problem.shares[0].objective)])
    options = {"batch_size": 5, "steps": 1, "step_size": eta, "max_rounds": 12}
    # the same rows drawn twice would give twins the mean of one
    assert not np.allclose(trace(twins, "fedavg", **options).iterates(), trace(alone, "fedavg", **options).iterates())
    path = trace(alone, "fedavg", **{**options, "step_size": 1e-12}).iterates()
    assert np.ptp(np.diff(path, axis=0), axis=0).max() > 1e-14  # the gradient hardly changes, the rows do


@pytest.mark.parametrize("method", BATCHED)
def test_a_minibatch_of_all_rows_is_no_minibatch(method: str) -> None:
    options = {"steps": 3, "step_size": 0.05, "max_rounds": 20}
    whole = trace(logistic(4), method, **options).iterates()
    batched = trace(logistic(4), method, batch_size=1000, **options).iterates()
    assert len(whole) == len(batched)
    np.testing.assert_allclose(batched, whole, rtol=0, atol=1e-13)


def test_minibatches_come_near_and_keep_moving() -> None:
    problem = logistic(5, ridge=0.3)
    exact = fp.solve(problem, "interior-point", tol=1e-9)
    watch = Watching()
    options = {"batch_size": 10, "steps": 2, "step_factor": 0.1, "max_rounds": 400}
    found = fp.solve(problem, "scaffold", tol=1e-9, engine=watch, **options)
    tail = watch.iterates()[-100:]
    start = np.linalg.norm(exact.w)
    assert np.linalg.norm(tail.mean(0) - exact.w) < 0.1 * start
    assert np.linalg.norm(np.diff(tail, axis=0), axis=1).min() > 0
    assert found.status == "max_rounds"
    assert "does not come to rest" in found.reason


def test_owners_without_rows_are_named() -> None:
    rows = LogisticLoss([[1.0, 2.0], [0.0, 1.0]], [0, 1])
    problem = fp.FederatedProblem([fp.Share(rows), fp.Share(Quadratic(np.eye(2)), name="hospital b")])
    with pytest.raises(OptionError, match=r"^hospital b: batch_size") as caught:
        fp.solve(problem, "scaffold", batch_size=1)
    assert caught.value.code == "FP-OPTION-200"
