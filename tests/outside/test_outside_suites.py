"""Problems that others collected for their solvers, dealt to three owners: right, and honest where it is not."""

import pytest

from fedpact.errors import DataError
from fedpact_experiments.bench.outside import SMALL, judge
from fedpact_experiments.bench.outside_problems import SUITES

pytestmark = pytest.mark.outside

#: Exchanges for one problem. (Its page, docs/benchmarks/outside.md, has CPU-seconds; no test depends on them.)
ROUNDS = 1000
#: Exchanges that a small problem takes at most.
MOST = 40
#: What is not right today, by suite. Whoever mends one takes it out: the list is compared, not allowed for.
#: Gradients of PALMER1C and its kin have entries of 1e9, so that rounding is above the tolerance.
NOT_RIGHT = {
    "cvxpy": set(),
    "cutest": {"DEGENLPA", "DEGENLPB", "DUALC1", "PALMER1C", "PALMER2C", "PALMER3C", "PALMER4C", "PALMER7C"},
    "maros-meszaros": {"QBRANDY", "QPCBLEND", "QPCBOEI2", "QRECIPE", "QSHARE1B", "QSHARE2B"},
}
#: Claims that are not true.
WRONG = {"cvxpy": set(), "cutest": set(), "maros-meszaros": set()}
#: Small problems that are right and take more than MOST exchanges.
SLOW = {
    "cvxpy": {"sdp_2"},
    "cutest": {"OET1", "OET3", "PALMER8C", "PT", "SIPOW2", "SIPOW3", "SIPOW4"},
    "maros-meszaros": {"DUALC8"},
}


@pytest.fixture(scope="module", params=list(SUITES))
def judged(request):
    """The name of a suite, and how each of its problems ended."""
    try:
        problems = list(SUITES[request.param]())
    except DataError as error:
        pytest.skip(str(error))
    return request.param, [judge(one, rounds=ROUNDS) for one in problems]


def test_claims_are_true(judged):
    suite, rows = judged
    assert {row.problem for row in rows if row.wrong} == WRONG[suite]


def test_all_is_solved(judged):
    suite, rows = judged
    assert {row.problem for row in rows if not row.right} == NOT_RIGHT[suite] | WRONG[suite]


def test_small_problems_take_few_exchanges(judged):
    suite, rows = judged
    slow = {row.problem for row in rows if row.right and row.variables <= SMALL and row.exchanges > MOST}
    assert slow == SLOW[suite]


@pytest.mark.parametrize("name", ["sdp_1", "sdp_2", "expcone_socp_1"])
def test_curved_cones_at_five_owners(name):
    (one,) = (one for one in SUITES["cvxpy"]() if one.name == name)
    row = judge(one, owners=5, rounds=ROUNDS)
    assert row.right
    assert row.exchanges <= MOST
