"""A guard of the hot path: calls of functions, which no other program on the machine disturbs, instead of seconds."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable

import fedpact as fp
from fedpact import data, tasks
from fedpact.engines import InProcess

BOUND = 0.3
#: Calls per owner and exchange of `interior-point`, NumPy's and Python's own included, owner by owner: 432, of which 56
#: are slopes along the last way, in the last of eight exchanges.
CALLS = 450
#: Calls per exchange where owners answer in one computation, whatever their number: 906 with 60 owners.
CALLS_JOINTLY = 930
#: ... and what every owner adds to them: 4.05.
CALLS_EACH = 4.2


def count_calls(work: Callable[[], object]) -> int:
    profile = cProfile.Profile()
    profile.enable()
    work()
    profile.disable()
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined, no-any-return]


def build(n: int) -> fp.FederatedProblem:
    return tasks.neyman_pearson(data.neyman_pearson(n, 40, 5), BOUND)


def solve(problem: fp.FederatedProblem, jointly: bool = True) -> fp.Solution:
    return fp.solve(problem, "interior-point", tol=1e-6, engine=InProcess(jointly=jointly))


def calls_per_exchange(owners: int, jointly: bool) -> float:
    problem = build(owners)
    exchanges = solve(problem, jointly).rounds  # and whatever is computed once for all solves
    return count_calls(lambda: solve(problem, jointly)) / exchanges


def test_an_owner_costs_no_more_calls_than_it_did() -> None:
    assert calls_per_exchange(60, jointly=False) / 60 <= CALLS


def test_owners_in_one_computation_cost_hardly_more_calls_than_one() -> None:
    few = calls_per_exchange(60, jointly=True)
    many = calls_per_exchange(240, jointly=True)
    assert few <= CALLS_JOINTLY
    assert (many - few) / 180 <= CALLS_EACH


def test_building_a_problem_is_linear_in_its_owners() -> None:
    build(10)
    few, many = (count_calls(lambda n=n: build(n)) for n in (50, 200))  # type: ignore[misc]
    assert many <= 4.2 * few


def test_the_history_does_not_grow_with_owners_times_iterations() -> None:
    """Of thousands of owners a record lists the largest violations; the certificate lists all."""
    problem = fp.FederatedProblem(
        [
            fp.Share(
                fp.functions.Quadratic([[1.0]], [-1.0]),
                fp.Constraint(fp.functions.Affine([[1.0]], [-k / 1e4]), fp.cones.Nonnegative(1)),
            )
            for k in range(1100)
        ]
    )
    answer = fp.solve(problem, "interior-point", max_rounds=8)
    assert len(answer.certificate.violations) == 1100
    assert all(len(record.violations) == 1000 for record in answer.history.outer)
