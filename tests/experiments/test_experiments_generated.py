"""The generator of problems, and "auto" on a sample of them: right, or honest about it, beside a conic solver."""

import numpy as np
import pytest

import fedpact as fp
from fedpact.problem.ray import check_ray
from fedpact_experiments.bench.generated import judge
from fedpact_experiments.bench.generated_problems import KINDS, OBJECTIVES, REGULARIZERS, TRAITS, draw

#: One problem of every kind of ending, objective and cone, small enough for the default tests.
SAMPLE = (0, 1, 4, 5, 8, 12, 53, 72)
#: CPU-seconds: no test depends on them, so they are generous.
LIMIT = 60.0


def test_problems_are_of_all_kinds_and_the_same_for_a_seed():
    drawn = [draw(seed) for seed in range(60)]
    assert {p.objective for p in drawn} == set(OBJECTIVES)
    assert {p.regularizer for p in drawn} == set(REGULARIZERS)
    assert {kind for p in drawn for kind in p.kinds} == set(KINDS)
    assert {trait for p in drawn for trait in p.traits} == set(TRAITS)
    assert {p.expected for p in drawn} == {"optimal", "infeasible", "weakly infeasible", "unbounded"}
    again = draw(7)
    w = np.full(again.problem.dim, 0.3)
    for one, other in zip(drawn[7].problem.shares, again.problem.shares, strict=True):
        assert one.objective.value(w) == other.objective.value(w)


@pytest.mark.parametrize("seed", SAMPLE)
def test_auto_is_right(seed):
    row = judge(seed, tol=1e-6, limit=LIMIT)
    assert row.right, row
    assert not row.wrong


@pytest.mark.slow
@pytest.mark.parametrize("first", [1_000, 1_020, 1_040])
def test_auto_is_never_wrong(first):
    """Fresh problems: most are solved, and what is claimed of the others is true."""
    rows = [judge(seed, tol=1e-6, limit=LIMIT / 6) for seed in range(first, first + 20)]
    assert not [row for row in rows if row.wrong]
    assert sum(row.right for row in rows) >= 18


def test_proofs_are_kept_and_checked_again():
    infeasible = draw(53)
    answer = fp.solve(infeasible.problem, tol=1e-6, relative=True)
    assert answer.status == "infeasible"
    assert set(answer.proof.check(infeasible.problem)) == set(answer.conflict)


def test_a_ray_is_admitted_by_all_constraints_and_falls():
    """min -w_1 with w_2 <= 1: along the first axis without end, along the second not at all."""
    bound = fp.Constraint(fp.functions.Affine([[0.0, 1.0]], [-1.0]), fp.cones.Nonnegative(1))
    problem = fp.FederatedProblem([fp.Share(fp.functions.Quadratic(np.zeros((2, 2)), [-1.0, 0.0]), bound)])
    origin = np.zeros(2)
    assert check_ray(problem, origin, np.array([1.0, 0.0]))
    assert not check_ray(problem, origin, np.array([1.0, 0.1]))
    assert not check_ray(problem, origin, np.array([0.0, -1.0]))
    answer = fp.solve(problem)
    assert answer.status == "unbounded"
