"""SCAFFOLD against its paper: the iterates of Algorithm 1, the optimum without bias, and what it refuses."""

import numpy as np
import pytest
from averaging_cases import Quadratics, Watching, quadratics

import fedpact as fp
from fedpact.errors import OptionError
from fedpact.functions import Quadratic

CASE = quadratics(3)


def algorithm_1(
    case: Quadratics, samples: list[tuple[str, ...]], steps: int, local: float, server: float, option: str
) -> list[np.ndarray]:
    """Karimireddy et al. (2020), Algorithm 1, line by line, with the samples given; the x of every round."""
    x, c = np.zeros(case.dim), np.zeros(case.dim)
    own = np.zeros((case.owners, case.dim))
    path = []
    for sample in samples:
        path.append(x)
        changes_y, changes_c = [], []
        for i in (int(name.split()[-1]) - 1 for name in sample):
            y = x
            for _ in range(steps):
                y = y - local * (case.image(i, y) - own[i] + c)
            plus = case.image(i, x) if option == "I" else own[i] - c + (x - y) / (steps * local)
            changes_y.append(y - x)
            changes_c.append(plus - own[i])
            own[i] = plus
        x = x + server * np.mean(changes_y, axis=0)
        c = c + len(sample) / case.owners * np.mean(changes_c, axis=0)
    return path


@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("participation", [1.0, 0.4])
@pytest.mark.parametrize("steps", [1, 6])
def test_iterates_are_those_of_algorithm_1(steps: int, participation: float, option: str) -> None:
    watch, local = Watching(), 0.3 / CASE.lipschitz
    fp.solve(
        CASE.problem(),
        "scaffold",
        steps=steps,
        step_size=local,
        relaxation=0.9,
        participation=participation,
        option=option,
        tol=1e-9,
        max_rounds=40,
        engine=watch,
    )
    path = algorithm_1(CASE, watch.samples(), steps, local, 0.9, option)
    assert len(path) > 25
    assert {len(sample) for sample in watch.samples()} == {round(5 * participation)}
    np.testing.assert_allclose(watch.iterates(), path, rtol=0, atol=1e-12)


@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("steps", [1, 5, 12])
def test_it_reaches_the_optimum_where_fedavg_does_not(steps: int, option: str) -> None:
    # option I is less patient with long local ways: with many steps of length 1 / L it goes around the optimum
    factor = 1.0 if option == "II" else 1 / steps
    found = fp.solve(CASE.problem(), "scaffold", steps=steps, option=option, step_factor=factor, tol=1e-9)
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, CASE.optimum(), rtol=0, atol=1e-8)
    if steps > 1:
        assert fp.solve(CASE.problem(), "fedavg", steps=steps, tol=1e-9).status == "stalled"


def test_control_variates_become_the_gradients_at_the_optimum() -> None:
    watch = Watching()
    fp.solve(CASE.problem(), "scaffold", tol=1e-10, engine=watch)
    first, last = watch.orders()[0], watch.orders()[-1]
    np.testing.assert_array_equal(first.variate, np.zeros(4))
    np.testing.assert_allclose(last.variate, np.zeros(4), rtol=0, atol=1e-8)  # the mean of F_i at the optimum


def test_the_first_round_is_that_of_fedavg() -> None:
    controlled, plain = Watching(), Watching()
    fp.solve(CASE.problem(), "scaffold", steps=8, max_rounds=10, engine=controlled)
    fp.solve(CASE.problem(), "fedavg", steps=8, max_rounds=10, engine=plain)
    np.testing.assert_array_equal(controlled.iterates()[1], plain.iterates()[1])
    assert not np.allclose(controlled.iterates()[2], plain.iterates()[2], rtol=1e-3)


def test_owners_take_a_quadratic_h_in_parts_without_bias() -> None:
    found = fp.solve(CASE.problem(fp.prox.SquaredL2(0.7)), "scaffold", tol=1e-9)
    assert found.status == "solved"
    np.testing.assert_allclose(found.w, CASE.optimum(ridge=0.7), rtol=0, atol=1e-8)


def test_h_that_is_not_smooth_is_refused() -> None:
    with pytest.raises(OptionError, match=r'method "scaffold" takes no L1\(0.1\).*use "feddr" or "ifeddr"'):
        fp.solve(CASE.problem(fp.prox.L1(0.1)), "scaffold")


def test_steps_of_the_owners_own_may_diverge_and_that_is_a_status() -> None:
    """One owner of little curvature, one of much: the first one's long steps throw the mean beyond the optimum."""
    case = Quadratics(np.stack([np.eye(2) * a for a in (0.01, 1.0)]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    found = fp.solve(case.problem(), "scaffold", steps=1, step_rule="own", max_rounds=3000)
    assert found.status == "stalled"
    assert "too long" in found.reason
    assert fp.solve(case.problem(), "scaffold", steps=1, tol=1e-9).status == "solved"


def test_one_owner_alone_takes_gradient_steps() -> None:
    problem = fp.FederatedProblem([fp.Share(Quadratic(CASE.A[0], CASE.b[0]))])
    found = fp.solve(problem, "scaffold", steps=4, tol=1e-10)
    np.testing.assert_allclose(found.w, np.linalg.solve(CASE.A[0], -CASE.b[0]), rtol=0, atol=1e-8)


@pytest.mark.parametrize("option", ["I", "II"])
def test_history_counts_scaffolds_gradients(option: str) -> None:
    found = fp.solve(CASE.problem(), "scaffold", steps=5, option=option, max_rounds=12, tol=1e-9)
    assert {r.gradients for r in found.history.local} == {(5 + (option == "I"),) * 5}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"option": "III"}, "option = 'III': choose 'I', 'II'"),
        ({"option": 2}, "option = 2: choose 'I', 'II'"),
        ({"steps": 1.5}, "steps = 1.5: give a whole number"),
        ({"step_rule": "mine"}, "step_rule = 'mine': choose 'common', 'own'"),
    ],
    ids=lambda value: None if isinstance(value, str) else f"{next(iter(value))} {next(iter(value.values()))}",
)
def test_scaffold_misuse(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        fp.solve(CASE.problem(), "scaffold", **options)
