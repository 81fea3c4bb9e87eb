"""Arrays that a user gives: nothing is read that a mask hides, nothing is lost of a complex number, at any door."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import fedpact as fp
from fedpact import postprocess, tasks
from fedpact.cones import Nonnegative
from fedpact.errors import FedpactError
from fedpact.functions import Affine, Linear, LogisticLoss, Quadratic, Smooth, SmoothMap, SoftmaxLoss
from fedpact.types import to_array, to_real

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2))
Y = np.tile([0, 1], 6)
G = np.repeat([0, 1], 6)
A = np.diag([1.0, 2.0])
PAIRS = np.tile([0, 0, 1, 1], 3)
IDS = [str(i) for i in range(12)]


def problem() -> fp.FederatedProblem:
    return fp.FederatedProblem([fp.Share(Quadratic(A, np.ones(2)), fp.Constraint(Affine(X[:1]), Nonnegative(1)))])


def smooth(value: Any = 0.0, gradient: Any = X[0], hessian: Any = A) -> None:
    function = Smooth(lambda w: (value, gradient), lambda w: hessian, dim=2)
    function.value_and_gradient(np.zeros(2))
    function.hessian(np.zeros(2))


def estimate(**given: Any) -> None:
    arguments = {"X": X, "y": Y, "client": G, **given}
    fp.NeymanPearsonClassifier(bound=5.0).fit(arguments["X"], arguments["y"], client=arguments["client"])


def fair(group: Any) -> None:
    fp.FairClassifier(max_gap=5.0).fit(X, Y, client=np.zeros(12), group=group)


def vertical(**given: Any) -> None:
    arguments = {"a": X, "y": Y, "group": G, "max_gap": 5.0, **given}
    fp.VerticalProblem({"a": arguments["a"]}, arguments["y"], arguments["group"], arguments["max_gap"])


def aligned(**given: Any) -> None:
    arguments = {"X": X, "y": Y, "group": G, **given}
    table = tasks.IdTable(IDS, arguments["X"])
    tasks.vertical_fairness({"a": table}, IDS, arguments["y"], arguments["group"], max_gap=5.0)


#: A door by name: what it takes, and the array that it takes as it should be.
DOORS: dict[str, tuple[Callable[[Any], object], np.ndarray]] = {
    "Quadratic A": (Quadratic, A),
    "Quadratic b": (lambda b: Quadratic(A, b), X[0]),
    "Affine C": (Affine, X),
    "Affine d": (lambda d: Affine(X[:2], d), X[0]),
    "LogisticLoss X": (lambda rows: LogisticLoss(rows, Y), X),
    "LogisticLoss y": (lambda y: LogisticLoss(X, y), Y),
    "LogisticLoss weight": (lambda weight: LogisticLoss(X, Y, weight), np.ones(12)),
    "SoftmaxLoss X": (lambda rows: SoftmaxLoss(rows, Y, 2), X),
    "SoftmaxLoss y": (lambda y: SoftmaxLoss(X, y, 2), Y),
    "Linear M": (Linear, A),
    "Linear q": (lambda q: Linear(A, q), X[0]),
    "a constant added": (lambda d: Affine(X[:2]) + d, X[0]),
    "a constant subtracted": (lambda d: Affine(X[:2]) - d, X[0]),
    "Smooth gradient": (lambda g: smooth(gradient=g), X[0]),
    "Smooth Hessian": (lambda h: smooth(hessian=h), A),
    "SmoothMap value": (lambda v: SmoothMap(lambda w: (v, A)).value(np.zeros(2)), X[0]),
    "L1 weight": (fp.prox.L1, np.ones(2)),
    "SquaredL2 weight": (fp.prox.SquaredL2, np.ones(2)),
    "Box lo": (lambda lo: fp.prox.Box(lo, 5.0), np.zeros(2)),
    "w0": (lambda w0: fp.solve(problem(), w0=w0), np.zeros(2)),
    "certify w": (lambda w: fp.certify(problem(), w, [None, None]), np.zeros(2)),
    "certify multiplier": (lambda m: fp.certify(problem(), np.zeros(2), [None, m]), np.zeros(1)),
    "task X": (lambda rows: tasks.neyman_pearson({"a": (rows, Y)}, bound=5.0), X),
    "task y": (lambda y: tasks.neyman_pearson({"a": (X, y)}, bound=5.0), Y),
    "task group": (lambda g: tasks.group_fairness({"a": (X, Y, g)}, max_gap=5.0), G),
    "task y of -1 and 1": (lambda y: tasks.logistic_regression({"a": (X, y)}, weight=0.1), 2 * Y - 1),
    "rows X": (lambda rows: tasks.Rows.of(rows, Y, G), X),
    "rows y": (lambda y: tasks.Rows.of(X, y, G), Y),
    "rows group": (lambda group: tasks.Rows.of(X, Y, group), G),
    "linear_qp A": (lambda a: tasks.linear_qp(a, np.ones((1, 2)), np.ones((2, 1, 2)), np.ones((2, 1))), A[None]),
    "estimator X": (lambda rows: estimate(X=rows), X),
    "estimator y": (lambda y: estimate(y=y), Y),
    "estimator client": (lambda client: estimate(client=client), G),
    "estimator group": (fair, G),
    "vertical X": (lambda rows: vertical(a=rows), X),
    "vertical y": (lambda y: vertical(y=y), Y),
    "vertical group": (lambda group: vertical(group=group), G),
    "vertical max_gap": (lambda gap: vertical(max_gap=gap), np.array([5.0])),
    "vertical estimator y": (lambda y: fp.FairVerticalClassifier(max_gap=5.0).fit({"a": X}, y, group=G), Y),
    "aligned X": (lambda rows: aligned(X=rows), X),
    "aligned y": (lambda y: aligned(y=y), Y),
    "aligned group": (lambda group: aligned(group=group), G),
    "equalized odds scores": (lambda scores: postprocess.equalized_odds(Y, scores, PAIRS), X[:, 0]),
    "equalized odds y": (lambda y: postprocess.equalized_odds(y, X[:, 0], PAIRS), Y),
    "equalized odds group": (lambda g: postprocess.equalized_odds(Y, X[:, 0], g), PAIRS),
}
EVERY = pytest.mark.parametrize("door", DOORS)
#: Labels of groups and of clients may be anything that can be told apart.
LABELS = {door for door in DOORS if door.startswith("estimator") and door != "estimator X"}
LABELS |= {"rows y", "rows group", "vertical group", "vertical estimator y", "aligned group"}


def masked(array: np.ndarray, rows: slice = slice(0, 1)) -> np.ma.MaskedArray:
    mask = np.zeros(array.shape, dtype=bool)
    mask[rows] = True
    return np.ma.array(array, mask=mask)


def refusal(enter: Callable[[Any], object], given: Any) -> FedpactError | None:
    try:
        enter(given)
    except FedpactError as error:
        return error
    return None


@EVERY
def test_an_array_as_it_should_be_passes(door: str) -> None:
    enter, array = DOORS[door]
    assert refusal(enter, array) is None
    assert refusal(enter, np.ma.array(array, mask=False)) is None  # a mask that hides nothing


@EVERY
def test_masked_values_are_refused(door: str) -> None:
    enter, array = DOORS[door]
    with pytest.raises(FedpactError, match=r"masked|max_gap = "):
        enter(masked(array))


@pytest.mark.parametrize("door", [door for door, (_, array) in DOORS.items() if array.ndim > 1])
def test_masked_rows_in_a_list_are_refused(door: str) -> None:
    enter, array = DOORS[door]
    with pytest.raises(FedpactError, match="masked"):
        enter([masked(row) for row in array])


@pytest.mark.parametrize("door", [door for door in DOORS if door not in LABELS and "odds" not in door])
def test_complex_numbers_are_refused(door: str) -> None:
    """Also where the imaginary part is zero: it would be a guess that it always is."""
    enter, array = DOORS[door]
    told = r"(?i)complex|real numbers|max_gap = |can be added"
    with pytest.raises((FedpactError, TypeError, ValueError), match=told):  # scikit-learn's own, for one
        enter(array + 0j)


def test_complex_scores_are_refused() -> None:
    with pytest.raises(FedpactError, match="complex"):
        postprocess.equalized_odds(Y, X[:, 0] + 1j, PAIRS)


def test_complex_sparse_rows_are_refused() -> None:
    with pytest.raises(FedpactError, match="complex"):
        tasks.logistic_regression({"a": (sp.csr_array(X + 1j), Y)}, weight=0.1)
    with pytest.raises(FedpactError, match="complex"):
        LogisticLoss(sp.csr_array(X + 1j), Y)


@pytest.mark.parametrize(
    "enter",
    [
        lambda big: fp.solve(problem(), w0=[big, 0.0]),
        lambda big: tasks.neyman_pearson({"a": ([[big, 1.0]], [1])}, bound=0.2),
        lambda big: tasks.neyman_pearson({"a": (X, Y)}, bound=big),
        lambda big: big * Quadratic(A),
        lambda big: Quadratic(A) + big,
        lambda big: vertical(max_gap=big),
        lambda big: fp.solve(problem(), "proximal-al", penalty=big),
        lambda big: fp.solve(problem(), deadline=big),
    ],
    ids=["w0", "X", "bound", "factor", "term", "max_gap", "penalty", "deadline"],
)
def test_whole_numbers_that_fit_no_float_are_refused(enter: Callable[[int], object]) -> None:
    with pytest.raises(FedpactError):
        enter(10**400)


def test_a_deadline_beyond_the_clock_is_refused() -> None:
    with pytest.raises(FedpactError, match="deadline = 1e"):
        fp.solve(problem(), deadline=1e300)


def test_what_is_converted_is_what_was_given() -> None:
    assert to_array(X) is X  # data may be large
    assert to_real(X) is X
    assert to_real([1, 2.5]).tolist() == [1.0, 2.5]
    assert to_real(np.ma.array([1, 2], mask=[0, 0])).tolist() == [1.0, 2.0]
    assert to_array(["a", None]).tolist() == ["a", None]
    for given, words in (
        (np.ma.array([1.0, 2.0], mask=[0, 1]), "1 of its values are masked"),
        ([1.0, np.ma.masked], "1 of its values are masked"),
        (np.array([1j]), "complex"),
        ([[1.0], [2.0, 3.0]], "inhomogeneous"),
        (["a"], "could not convert"),
        ([10**400], "too large"),
    ):
        with pytest.raises(ValueError, match=words):
            to_real(given)
