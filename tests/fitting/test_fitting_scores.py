"""Decisions of a vertical model: counts by hand, and the certificate by the same task on pooled columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from raising import raises_code
from vertical_cases import CUTS, rows

import fedpact as fp
from fedpact.fitting import fit, scores
from fedpact.fitting.scores import EVERYONE, ScoredFit, fit_on_scores
from fedpact.tasks import Classification, Requirement, Rows

pytest.importorskip("cryptography")

WEIGHT = 0.02
TABLE = rows(0, n=600)


def asked(**options: Any) -> fp.VerticalProblem:
    parties = {name: TABLE.X[:, cut] for name, cut in CUTS.items()}
    return fp.VerticalProblem(parties, TABLE.y, regularizer=fp.prox.SquaredL2(WEIGHT), **options)


def task(*constraints: Requirement, **options: Any) -> Classification:
    stated = {"label": "y", "columns": ("scores",), "group": "g", **options}
    return Classification(constraints=constraints, **stated)


def fitted(about: Classification, problem: fp.VerticalProblem | None = None, **options: Any) -> tuple[ScoredFit, int]:
    problem = problem or asked()
    with fp.Session() as session:
        session.open(problem.sources)
        session.secure()
        found = fit_on_scores(about, problem, session, TABLE.group, tol=1e-6, **options)
        return found, session.ledger.rounds


def certified_by_pooled_columns(found: ScoredFit, features: np.ndarray) -> fp.Certificate:
    """The last problem of the fit, stated for rows with all columns; its centre is the model with the same scores."""
    last = found.fit.task
    assert isinstance(last, Classification)
    w = found.w.copy()
    w[-1] += last.decide_at
    design = np.column_stack([TABLE.X, np.ones(len(TABLE.y))])
    centre = np.array(last.centre)
    there = features @ centre[:-1] + centre[-1]
    same = np.linalg.lstsq(design, there, rcond=None)[0]
    columns = tuple(f"c{k}" for k in range(8))
    stated = replace(last, columns=columns, centre=tuple(same.tolist()), regularization=WEIGHT)
    pooled: Any = stated.share(EVERYONE, Rows(TABLE.X, TABLE.y, TABLE.group))
    problem = fp.FederatedProblem([pooled], regularizer=stated.regularizer())
    return fp.certify(problem, w, [np.zeros(0), found.solution.multipliers[1]])


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The features that the coordinator learns."""
    kept = []
    learn = scores.learn

    def learn_and_keep(*given: Any) -> Any:
        kept.append(learn(*given))
        return kept[-1]

    monkeypatch.setattr(scores, "learn", learn_and_keep)
    return kept


KINDS = [
    Requirement(kind="equal_opportunity", at_most=0.02),
    Requirement(kind="demographic_parity", at_most=0.05),
    Requirement(kind="recall", at_least=0.95),
]


@pytest.mark.parametrize("one", KINDS, ids=lambda one: one.kind)
def test_decisions_are_counted_and_certified_by_the_parties_columns(one: Requirement, learned: list[Any]) -> None:
    found, exchanges = fitted(task(one))
    assert found.solved, found.solution.reason
    assert exchanges == 5  # two for keys, the sketch, the move, the end
    np.testing.assert_allclose(found.scores, TABLE.X @ found.w[:-1] + found.w[-1], atol=1e-10)
    decided = found.scores > 0
    positive = TABLE.y == 1
    if one.kind == "recall":
        assert decided[positive].mean() >= 0.95 - 1e-12
    else:
        among = positive if one.kind == "equal_opportunity" else TABLE.y >= 0
        cells = [among & (g == TABLE.group) for g in (0, 1)]
        gap = abs(decided[cells[0]].mean() - decided[cells[1]].mean())
        assert one.at_most is not None
        assert gap <= one.at_most + 1 / min(cell.sum() for cell in cells) + 1e-12
    again = certified_by_pooled_columns(found, learned[0].features)
    assert found.certificate.stationarity == pytest.approx(again.stationarity, rel=1e-3, abs=1e-9)
    assert found.certificate.feasibility == pytest.approx(again.feasibility, rel=1e-3, abs=1e-9)


def test_a_promise_is_kept_by_the_threshold() -> None:
    found, _ = fitted(task(Requirement(kind="recall", at_least=0.9, confidence=0.9)))
    assert found.solved
    kept = found.fit.task.held_out(EVERYONE, TABLE.y, TABLE.group)
    recall = np.mean(found.scores[kept & (TABLE.y == 1)] > 0)
    assert recall > 0.9  # the order statistic leaves room
    assert found.fit.task.decide_at != 0


def test_parties_may_keep_their_coefficients() -> None:
    found, _ = fitted(task(KINDS[0]), hand_out=False)
    assert found.solved
    assert np.isnan(found.w[:-1]).all()
    assert np.isfinite(found.scores).all()


@pytest.mark.parametrize(
    ("options", "code"),
    [({"classes": ("a", "b", "c")}, "FP-OPTION-870"), ({"calibrate": True}, "FP-OPTION-871")],
)
def test_what_a_vertical_model_cannot_have(options: dict[str, Any], code: str) -> None:
    with raises_code(code):
        fitted(task(KINDS[2], **options))


def test_decisions_between_several_classes_are_those_of_pooled_rows() -> None:
    """Counts by hand; and the same task as a fit of one owner, to all columns."""
    y = np.digitize(TABLE.X[:, 0] + TABLE.X[:, 4] + 0.5 * TABLE.group + np.sin(np.arange(600)), [-0.5, 0.8])
    parties = {name: TABLE.X[:, cut] for name, cut in CUTS.items()}
    problem = fp.VerticalProblem(parties, y, loss="softmax", regularizer=fp.prox.SquaredL2(WEIGHT))
    one = Requirement(kind="recall", of="1", at_least=0.7)
    found, _ = fitted(task(one, classes=("0", "1", "2")), problem)
    assert found.solved, found.solution.reason
    W = found.w.reshape(3, 9)
    scores = TABLE.X @ W[:, :-1].T + W[:, -1]
    np.testing.assert_allclose(found.scores.reshape(3, -1).T, scores, atol=1e-10)
    decided = np.argmax(scores, axis=1)
    assert np.mean(decided[y == 1] == 1) >= 0.7
    columns = tuple(f"c{k}" for k in range(8))
    stated = task(one, classes=("0", "1", "2"), columns=columns, regularization=WEIGHT)
    pooled = fit(stated, {EVERYONE: Rows(TABLE.X, y, TABLE.group)}, tol=1e-8)
    assert pooled.solved
    assert found.solution.objective <= 1.01 * pooled.solution.objective  # smoothed errors have several minima
