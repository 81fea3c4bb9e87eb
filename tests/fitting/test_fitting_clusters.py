"""Rows in clusters: whole ones are held out, one row of each counts, and promises hold as often as they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from raising import raises_code
from scipy.stats import binomtest

import fedpact as fp
from fedpact.errors import FedpactError
from fedpact.jobs import read_job
from fedpact.problem import Share
from fedpact.tasks import Classification, Requirement, Rows
from fedpact.tasks.decisions import Decisions, Unseen

COLUMNS = ("u", "v", "w")
RECALL = Requirement(kind="recall", at_least=0.8, confidence=0.9)


def draw(rng: np.random.Generator, w: np.ndarray, clusters: int, rows: int) -> Rows:
    """Rows of clusters that share an offset of their features, and one of their label that no feature shows."""
    shared, shift = 0.8 * rng.normal(size=(clusters, 3)), 1.5 * rng.normal(size=clusters)
    which = rng.integers(0, clusters, rows)
    X = 0.6 * rng.normal(size=(rows, 3)) + shared[which]
    y = (rng.uniform(size=rows) < 1 / (1 + np.exp(-(1.5 * X @ w + shift[which])))).astype(int)
    return Rows(X, y, cluster=which)


def task(**stated: object) -> Classification:
    asked: dict[str, object] = {"constraints": (RECALL,), "cluster": "doctor", **stated}
    return Classification(label="ill", columns=COLUMNS, **asked)  # type: ignore[arg-type]


def decisions(asked: Classification, rows: Rows) -> Decisions:
    share = asked.share("a", rows)
    assert isinstance(share, Share)
    assert isinstance(share.measures, Decisions)
    return share.measures


def test_clusters_are_held_out_whole_and_one_row_of_each_counts() -> None:
    rng = np.random.default_rng(0)
    rows = draw(rng, rng.normal(size=3), 200, 1000)
    assert rows.cluster is not None
    asked = task().among(("a",))
    held = asked.held_out("a", rows.y, None, rows.cluster)
    assert not set(rows.cluster[held]) & set(rows.cluster[~held])
    known = np.unique(rows.cluster).size
    assert np.unique(rows.cluster[held]).size == round(0.5 * known)
    found = decisions(asked, rows)
    assert len(found.kept.y) == round(0.5 * known)
    assert len(found.rows.y) == np.sum(~held)
    unseen = asked.measures_of("a", rows, lambda: rows)
    assert isinstance(unseen, Unseen)
    assert len(unseen.rows.y) == known


def test_the_row_that_counts_is_drawn_without_a_look_at_its_class() -> None:
    rng = np.random.default_rng(1)
    rows = draw(rng, rng.normal(size=3), 100, 600)
    asked = task()
    one = asked.one_of_each("a", 600, rows.cluster)
    other = replace(rows, y=1 - rows.y)
    np.testing.assert_array_equal(one, asked.one_of_each("a", 600, other.cluster))
    assert rows.cluster is not None
    assert np.sum(one) == np.unique(rows.cluster[one]).size == np.unique(rows.cluster).size


def test_too_few_clusters_bear_no_promise_however_many_rows_there_are() -> None:
    rng = np.random.default_rng(2)
    rows = draw(rng, rng.normal(size=3), 12, 3000)
    with raises_code("FP-DATA-803", "owner 'a'", "held-out clusters (doctor)", "11"):
        fp.fit(task(), {"a": rows})


def test_a_table_names_its_clusters(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("u,v,w,doctor,ill\n1,2,3,x,0\n1,2,3,7,1\n2,2,3,x,1\n")
    found = task().read(path)
    assert found.cluster is not None
    assert found.cluster[0] == found.cluster[2] != found.cluster[1]
    path.write_text("u,v,w,doctor,ill\n1,2,3,x,0\n1,2,3,,1\n")
    with raises_code("FP-DATA-320", str(path), "doctor"):
        task().read(path)


def test_a_job_names_the_column_of_clusters(tmp_path: Path) -> None:
    """It is none of the features, which are all other columns where the job states none."""
    (tmp_path / "a.csv").write_text("u,v,w,doctor,ill\n1,2,3,x,0\n1,2,3,7,1\n")
    (tmp_path / "job.toml").write_text(
        'task = "classification"\nlabel = "ill"\ncluster = "doctor"\n[owners]\na = "a.csv"\n'
        '[[constraint]]\nkind = "recall"\nat_least = 0.8\nconfidence = 0.9\n'
    )
    found = read_job(tmp_path / "job.toml").task
    assert isinstance(found, Classification)
    assert (found.cluster, found.columns) == ("doctor", COLUMNS)


@pytest.mark.slow
@pytest.mark.parametrize("threshold", ["common", "own"])
def test_promises_of_clustered_rows_break_no_more_often_than_they_say(threshold: str) -> None:
    """Federations of two owners with 120 clusters of 30: of the promises made at most 10 % break, by the binomial."""
    broken = {True: 0, False: 0}
    made = {True: 0, False: 0}
    for seed in range(60):
        rng = np.random.default_rng([77, seed])
        w = rng.normal(size=3)
        given = {name: draw(rng, w, 120, 3600) for name in ("a", "b")}
        new = {name: draw(rng, w, 6000, 6000) for name in given}
        for known in (True, False):
            rows = given if known else {name: replace(one, cluster=None) for name, one in given.items()}
            model = fp.NeymanPearsonClassifier(
                min_recall=0.8,
                confidence=0.9,
                threshold=threshold,
                protected=1,
                seed=seed,  # type: ignore[arg-type]
            )
            client = np.repeat(["a", "b"], 3600)
            cluster = np.concatenate([10000 * k + one.cluster for k, one in enumerate(given.values())])  # type: ignore[operator]
            X = np.vstack([one.X for one in rows.values()])
            y = np.concatenate([one.y for one in rows.values()])
            try:
                model.fit(X, y, client=client, cluster=cluster if known else None)
            except FedpactError:
                continue  # too few clusters of the class were held out: no promise
            made[known] += 1
            recalls = []
            for name, one in new.items():
                decided = model.predict(one.X, client=np.full(len(one.y), name))
                recalls.append(decided[one.y == 1].mean())
            broken[known] += min(recalls) < 0.8
    assert made[True] >= 40
    assert binomtest(broken[True], made[True], 0.1, alternative="greater").pvalue > 0.01
    assert broken[False] / made[False] > broken[True] / made[True]  # as if rows were independent
