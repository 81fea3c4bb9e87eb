"""Every method on random convex problems: one answer, the conic solver's, in objective, primal and dual."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st
from random_problems import Inaccurate, random_problem

import fedpact as fp

TOL = {"interior-point": 1e-7, "accelerated": 1e-6, "proximal-al": 1e-5}
CONSTRAINTS = st.lists(st.sampled_from(["inequality", "ball", "curved"]), max_size=2, unique=True)


@st.composite
def problems(draw):
    n = draw(st.integers(1, 5))
    kinds = draw(CONSTRAINTS)
    if n <= 2 and draw(st.booleans()):  # more equalities would leave no freedom in four variables
        kinds = [*kinds, "equality"]
    return random_problem(
        draw(st.integers(0, 10**6)),
        n,
        draw(st.sampled_from(["quadratic", "logistic"])),
        kinds,
        draw(st.sampled_from([None, "l1", "box"])),
        draw(CONSTRAINTS)[:1],
    )


@given(made=problems())
@settings(
    max_examples=20,
    phases=(Phase.explicit, Phase.generate),  # a smaller example is not easier to read, and costs minutes to find
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
    derandomize=True,
)
@pytest.mark.slow
def test_all_methods_agree_with_the_conic_solver(made):
    problem, conic = made
    try:
        value, w, prices = conic.solve()
    except Inaccurate:
        reject()  # nothing to compare with
    for method, tol in TOL.items():
        found = fp.solve(problem, method, tol=tol)
        assert found.status == "solved", (method, found, found.reason)
        assert found.certificate.worst <= tol
        size = 1 + max((float(np.max(np.abs(p), initial=0.0)) for p in prices), default=0.0)
        assert abs(found.objective - value) <= 20 * tol * size, (method, found.objective, value)
        # The curvature is at least 0.2 and slopes are of order one; w errs by the certificate over the curvature.
        assert np.max(np.abs(found.w - w)) <= 100 * tol * size, method
        assert fp.certify(problem, found.w, found.multipliers).worst <= tol


@pytest.mark.parametrize("method", TOL)
@pytest.mark.parametrize("h", [None, "l1"])
def test_prices_are_the_conic_solvers(method, h):
    """With one curved bound an owner the multipliers are unique (the gradients are independent)."""
    problem, conic = random_problem(3, 2, "logistic", ("curved",), h, at_server=("equality",))
    _, _, prices = conic.solve()
    found = fp.solve(problem, method, tol=1e-6)
    assert any(np.any(p > 1e-2) for p in prices)
    for ours, theirs in zip(found.multipliers, prices, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-3)
