"""The digest of a share: the same in every process, another as soon as anything that a step can read has changed."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from faults import below, clinic

import fedpact as fp
from fedpact.cones import Nonnegative, SecondOrder, Zero
from fedpact.federation.digest import digest
from fedpact.functions import Affine, LogisticLoss, Quadratic, Smooth, SoftmaxLoss

ROWS = np.random.default_rng(0).normal(size=(6, 3))
LABELS = np.array([0, 1, 0, 1, 1, 0])


def changed(array: np.ndarray, cell: Any, by: float = 1e-13) -> np.ndarray:
    copy = np.array(array)
    copy[cell] += by
    return copy


def named_rows(w: np.ndarray) -> tuple[float, np.ndarray]:
    residual = _residual(w)
    return 0.5 * float(residual @ residual), ROWS.T @ residual


def _residual(w: np.ndarray) -> np.ndarray:
    return ROWS @ w - LABELS


def closed_over(X: np.ndarray, weight: float = 1.0) -> Smooth:
    def fun(w: np.ndarray) -> tuple[float, np.ndarray]:
        return weight * float(np.sum(X @ w)), weight * X.sum(axis=0)

    return Smooth(fun, dim=3)


def slope(X: np.ndarray, w: np.ndarray) -> tuple[float, np.ndarray]:
    return float(np.sum(X @ w)), X.sum(axis=0)


class Loss:
    """A user's own class, with rows in a place of its own."""

    def __init__(self, X: np.ndarray) -> None:
        self.kept = {"rows": [X]}

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        return slope(self.kept["rows"][0], w)


def logistic(X: Any = ROWS, y: Any = LABELS, weight: Any = None) -> fp.Share:
    return fp.Share(LogisticLoss(X, y, weight), below(LogisticLoss(X, y) - 0.5), name="a")


#: Pairs of shares that differ in one thing.
DIFFERENT: dict[str, Callable[[], tuple[object, object]]] = {
    "a cell": lambda: (logistic(), logistic(changed(ROWS, (3, 1)))),
    "a label": lambda: (logistic(), logistic(y=changed(LABELS, 2, 1))),
    "a weight": lambda: (logistic(weight=np.ones(6)), logistic(weight=changed(np.ones(6), 0))),
    "rows in another order": lambda: (logistic(), logistic(ROWS[::-1], LABELS[::-1])),
    "rows as columns": lambda: (ROWS, np.ascontiguousarray(ROWS.T)),
    "the same bytes in another shape": lambda: (ROWS, ROWS.reshape(3, 6)),
    "a row less": lambda: (logistic(), logistic(ROWS[:5], LABELS[:5])),
    "a sparse cell": lambda: (logistic(sp.csr_array(ROWS)), logistic(sp.csr_array(changed(ROWS, (0, 0))))),
    "a zero's sign": lambda: (np.zeros(2), -np.zeros(2)),
    "a NaN": lambda: (np.zeros(2), np.array([0.0, np.nan])),
    "a bound": lambda: (below(Affine([[1.0]], [0.1])), below(Affine([[1.0]], [0.2]))),
    "a cone": lambda: (fp.Constraint(Affine(ROWS), Zero(6)), fp.Constraint(Affine(ROWS), Nonnegative(6))),
    "a cone's kind": lambda: (SecondOrder(3), Nonnegative(3)),
    "no constraint": lambda: (clinic(0), replace(clinic(0), constraint=None)),
    "a factor": lambda: (2.0 * Quadratic(np.eye(2)), 3.0 * Quadratic(np.eye(2))),
    "objective and coupled": lambda: (fp.Share(None, None, Affine(ROWS)), fp.Share(None, below(Affine(ROWS[:1])))),
    "what a function closes over": lambda: (closed_over(ROWS), closed_over(changed(ROWS, 0))),
    "a number it closes over": lambda: (closed_over(ROWS), closed_over(ROWS, 2.0)),
    "an argument of a partial": lambda: (Smooth(partial(slope, ROWS)), Smooth(partial(slope, changed(ROWS, 0)))),
    "a user's object": lambda: (Smooth(Loss(ROWS)), Smooth(Loss(changed(ROWS, 0)))),
    "a user's method": lambda: (Loss(ROWS).__call__, Loss(changed(ROWS, 0)).__call__),
    "its code": lambda: (Smooth(lambda w: (0.0, w)), Smooth(lambda w: (0.0, -w))),
    "a constant of its code": lambda: (Smooth(lambda w: (0.5, w)), Smooth(lambda w: (0.7, w))),
    "a default": lambda: (lambda w, a=1: w, lambda w, a=2: w),
    "classes": lambda: (SoftmaxLoss(ROWS, LABELS, 3), SoftmaxLoss(ROWS, LABELS, 4)),
    "text in a list": lambda: (["ab", "c"], ["a", "bc"]),
    "depth of a list": lambda: ([1, [2]], [[1], 2]),
    "text and bytes": lambda: ("a", b"a"),
    "whole and real": lambda: (1, 1.0),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_another_content_has_another_digest(what: str) -> None:
    one, other = DIFFERENT[what]()
    assert digest(one) != digest(other)
    again = DIFFERENT[what]()
    assert (digest(one), digest(other)) == (digest(again[0]), digest(again[1]))  # built anew, the same


def test_arrays_that_a_function_names_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook the rows are a global name, and so is the function that reads them."""
    before = digest(Smooth(named_rows))
    assert digest(Smooth(named_rows)) == before
    monkeypatch.setitem(globals(), "LABELS", changed(LABELS, 0, 1))
    assert digest(Smooth(named_rows)) != before
    monkeypatch.undo()
    assert digest(Smooth(named_rows)) == before


def test_a_solve_leaves_no_trace_in_the_digest() -> None:
    shares = [clinic(i) for i in range(3)]
    before = [digest(share) for share in shares]
    assert fp.solve(fp.FederatedProblem(shares), "accelerated").solved
    assert [digest(share) for share in shares] == before


class Counting(Loss):
    def __init__(self, X: np.ndarray) -> None:
        super().__init__(X)
        self.calls, self.seen = 0, list[tuple[int, float]]()

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        self.calls += 1
        self.seen.append((self.calls, float(w[0])))
        return super().__call__(w)


def test_what_a_user_counts_does_not_count() -> None:
    """Else a run could not be resumed in the session in which it was stopped."""
    objects = Counting(ROWS)
    calls: list[int] = []
    gate = threading.Event()

    def closure(w: np.ndarray) -> tuple[float, np.ndarray]:
        calls.append(len(calls))
        gate.set()
        return objects(w)

    for function in (Smooth(objects), Smooth(closure), Smooth(partial(slope, ROWS)), Smooth(objects.__call__)):
        before = digest(fp.Share(function))
        function.value(np.ones(3))
        assert digest(fp.Share(function)) == before
    assert objects.calls == 3
    objects.kept["rows"][0] = changed(ROWS, 0)
    assert digest(Smooth(closure)) != before


class Scaled(fp.functions.Function):
    """A class derived from one of fedpact's: nothing that it holds changes by a call."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def value_and_gradient(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        return self.factor * float(w.sum()), np.full_like(w, self.factor)


def test_a_derived_class_counts_with_all_that_it_holds() -> None:
    assert digest(fp.Share(Scaled(1.0))) == digest(fp.Share(Scaled(1.0))) != digest(fp.Share(Scaled(1.5)))


def test_memory_order_and_way_of_the_bytes_do_not_count() -> None:
    assert digest(np.asfortranarray(ROWS)) == digest(ROWS)
    assert digest(ROWS[::2]) == digest(ROWS[::2].copy())
    for share in (clinic(0), clinic(1), logistic(sp.csr_array(ROWS))):
        assert digest(pickle.loads(pickle.dumps(share))) == digest(share)


def test_an_object_that_holds_itself_ends() -> None:
    def ring(value: int) -> list[object]:
        made: list[object] = [value]
        made.append({"back": made})
        return made

    assert digest(ring(1)) == digest(ring(1)) != digest(ring(2))


def test_sets_and_dictionaries_count_in_any_order() -> None:
    assert digest({"a": 1, "b": {"y", "x"}}) == digest({"b": {"x", "y"}, "a": 1})
    assert digest({"a": 1, "b": {"y", "z"}}) != digest({"b": {"x", "y"}, "a": 1})


SCRIPT = """
import test_federation_digest as here
from faults import clinic
from fedpact.federation.digest import digest
from fedpact.functions import Smooth

print(*map(digest, [*map(clinic, range(3)), here.logistic(), here.closed_over(here.ROWS), Smooth(here.named_rows)]))
"""


def test_another_process_finds_the_same() -> None:
    """With another seed for the hashes of texts, so in another order of sets."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={"PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path]), "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = sys.modules[__name__]
    shares = [*map(clinic, range(3)), logistic(), closed_over(ROWS), Smooth(named_rows)]
    assert here.__name__ == "test_federation_digest"
    assert done.stdout.split() == [digest(share) for share in shares]


@pytest.mark.extras
def test_tensors_count_by_their_numbers() -> None:
    torch = pytest.importorskip("torch")

    def loss(X: np.ndarray, first: float = 0.0) -> fp.functions.Function:
        module = torch.nn.Linear(3, 1)
        with torch.no_grad():
            module.weight.copy_(torch.tensor([[first, 0.0, 1.0]]))
            module.bias.zero_()
        return fp.functions.from_torch(module, torch.nn.functional.mse_loss, (X, LABELS[:, None].astype(float)))

    assert digest(loss(ROWS)) == digest(loss(ROWS))
    assert digest(loss(ROWS)) != digest(loss(changed(ROWS, (0, 0))))
    assert digest(loss(ROWS)) != digest(loss(ROWS, first=0.5))
