"""Tables with ids, in any order, become the problem of the people who are everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact import tasks

pytest.importorskip("cryptography", reason="needs the extra 'secure'")

KEY = bytes(range(32))


def tables(seed: int = 0) -> tuple[dict[str, tasks.IdTable], list[str], np.ndarray, np.ndarray]:
    """60 people, 50 of whom are at both parties and at the coordinator, each table in an order of its own."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 4))
    y, group = (X.sum(axis=1) + rng.normal(size=60) > 0).astype(int), np.arange(60) % 2
    ids = np.array([f"p{i:03d}" for i in range(60)])
    first, second, third = (rng.permutation(60)[:k] for k in (60, 60, 60))
    second = second[second >= 5]
    third = third[third < 55]
    return (
        {
            "bank": tasks.IdTable(list(ids[first]), X[first, :2], ("age", "income")),
            "shop": tasks.IdTable(list(ids[second]), X[second, 2:], ("visits", "spent")),
        },
        list(ids[third]),
        y[third],
        group[third],
    )


@pytest.mark.parametrize("alignment", ["id", "keyed-hash", "private"])
def test_every_alignment_gives_the_problem_of_the_same_people(alignment: str) -> None:
    given, ids, y, group = tables()
    problem = tasks.vertical_fairness(
        given,
        ids,
        y,
        group,
        0.05,
        alignment=alignment,
        key=KEY,
        on_missing="drop",  # type: ignore[arg-type]
    )
    assert problem.scored.y.size == 50
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    found = np.hstack([party.X for party in problem.shares])
    rows = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in found]  # both parties list the same people
    assert sorted(rows) == list(range(5, 55))
    labels = dict(zip(ids, y, strict=True))
    np.testing.assert_array_equal(problem.scored.y > 0, [labels[f"p{i:03d}"] == 1 for i in rows])
    assert [party.columns for party in problem.shares] == [("age", "income"), ("visits", "spent")]
    answer = fp.solve(problem, tol=1e-6)
    again = fp.solve(tasks.vertical_fairness(given, ids, y, group, 0.05, on_missing="drop"), tol=1e-6)
    np.testing.assert_allclose(answer.w, again.w, atol=1e-4)


def test_people_who_are_missing_are_named() -> None:
    given, ids, y, group = tables()
    with raises_code("FP-DATA-402", "", "party 'shop' lacks 5 of 60 ('p000'"):
        tasks.vertical_fairness(given, ids, y, group, 0.05)
    with raises_code("FP-DATA-406", "", "'p001'"):
        tasks.vertical_fairness(given, ["p001", "p001"], [0, 1], [0, 1], 0.05, on_missing="drop")
    with raises_code("FP-DATA-403", ""):
        tasks.vertical_fairness(given, ["q1", "q2"], [0, 1], [0, 1], 0.05, on_missing="drop")


def test_misuse_is_told() -> None:
    given, ids, y, group = tables()
    with raises_code("FP-OPTION-063", "alignment", "'magic'"):
        tasks.vertical_fairness(given, ids, y, group, 0.05, alignment="magic")  # type: ignore[arg-type]
    with raises_code("FP-OPTION-407", "the key of party 'bank' is 0 bytes"):
        tasks.vertical_fairness(given, ids, y, group, 0.05, alignment="keyed-hash")
    bank = tasks.IdTable(given["bank"].ids[1:], given["bank"].X)
    with raises_code("FP-DATA-071", "bank", "59 ids", "60 rows"):
        tasks.vertical_fairness({**given, "bank": bank}, ids, y, group, 0.05)
    with raises_code("FP-DATA-072", "y has shape (54,)", "55 ids"):
        tasks.vertical_fairness(given, ids, y[1:], group, 0.05, on_missing="drop")
    with raises_code("FP-DATA-072", "group has shape (54,)", "55 ids"):
        tasks.vertical_fairness(given, ids, y, group[1:], 0.05, on_missing="drop")
    with raises_code("FP-DATA-070", "", "'coordinator'"):
        tasks.vertical_fairness({"coordinator": given["bank"]}, ids, y, group, 0.05)
