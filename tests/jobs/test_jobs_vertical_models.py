"""Vertical jobs of several classes, of numbers, and with several protected attributes: against pooled columns."""

from __future__ import annotations

import csv
import io
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from party_files import PARTIES, write_table
from sklearn.linear_model import LogisticRegression

import fedpact as fp
from fedpact.cli.main import cli
from fedpact.errors import FedpactError
from fedpact.federation.rules import columns_sent
from fedpact.jobs import read_job, run_job
from fedpact.problem import Piece
from fedpact.tasks import PartyModel, load_model

N = 200
RNG = np.random.default_rng(8)
X = RNG.normal(size=(N, 10))
SEX = RNG.integers(0, 2, N)
AGE = RNG.integers(0, 3, N)
KIND = np.argmax(X[:, [0, 4, 8]] + RNG.gumbel(size=(N, 3)) + np.outer(SEX, [1.0, 0, 0]), axis=1)
RATE = np.exp(0.3 * X[:, 0] - 0.2 * X[:, 4] + 0.2 * SEX)
NUMBERS = {"squared": X[:, 0] - X[:, 4] + SEX + RNG.normal(size=N), "poisson": RNG.poisson(RATE).astype(float)}
AGES = ["young", "middle", "old"]
HEAD = '{task}alignment = "id"\n\n[owners]\nbank = "bank.csv"\nshop = "shop.csv"\nclinic = "clinic.csv"\n'


def write_job(folder: Path, label: list[Any], *lines: str, tables: str = "", solve: str = "tol = 1e-7") -> Path:
    """Three tables, in orders of their own; label, sex and age at the bank."""
    for name, columns in PARTIES.items():
        header = ["id", *(f"x{column}" for column in columns)]
        rows = [[f"p{i:03d}", *map(repr, map(float, X[i, list(columns)]))] for i in range(N)]
        if name == "bank":
            header += ["label", "sex", "age"]
            rows = [[*row, label[i], "FM"[SEX[i]], AGES[AGE[i]]] for i, row in enumerate(rows)]
        order = np.random.default_rng(len(name)).permutation(N)
        write_table(folder / f"{name}.csv", header, [rows[i] for i in order])
    stated = "\n".join(['task = "vertical"', 'label = "label"', *lines, ""])
    job = folder / "job.toml"
    job.write_text(f"{HEAD.format(task=stated)}{tables}\n[solve]\n{solve}\ncompare = false\n")
    return job


def coefficients(folder: Path, outputs: int) -> np.ndarray:
    """(outputs, columns and the intercept), from the pieces that the parties kept."""
    model = load_model(folder / "run")
    assert isinstance(model, PartyModel)
    pieces = [Piece.load(folder / "run" / "pieces" / f"{name}.npz") for name in PARTIES]
    return np.hstack([*(one.theta.reshape(outputs, -1) for one in pieces), np.reshape(model.intercept, (outputs, 1))])


def pooled(y: np.ndarray, *given: Any, **options: Any) -> fp.VerticalProblem:
    tables = {name: X[:, list(columns)] for name, columns in PARTIES.items()}
    return fp.VerticalProblem(tables, y, *given, standardize=True, **options)


def reference(problem: fp.VerticalProblem) -> fp.Solution:
    found = fp.solve(problem.pooled(), "interior-point", tol=1e-9)
    assert found.solved
    return found


def predicted(folder: Path) -> list[dict[str, str]]:
    tables = [option for name in PARTIES for option in ("--table", f"{name}={folder / name}.csv")]
    done = CliRunner().invoke(cli, ["predict", str(folder / "run"), *tables])
    assert done.exit_code == 0, done.output
    return list(csv.DictReader(io.StringIO(done.output)))


CLASSES = ["none", "some", "much"]
STATED = f"classes = {CLASSES}".replace("'", '"')
SCALED = (X - X.mean(axis=0)) / X.std(axis=0)


@pytest.mark.parametrize("method", ["vertical-al", "vertical-exact", "fair-vfl"])
def test_several_classes_are_multinomial_regression(tmp_path: Path, method: str) -> None:
    tol = 1e-4 if method == "fair-vfl" else 1e-7
    words = [CLASSES[k] for k in KIND]
    job = write_job(tmp_path, words, STATED, solve=f'tol = {tol}\nmethod = "{method}"')
    record = run_job(read_job(job))
    assert record.solved, record.reason
    theirs = LogisticRegression(C=0.5, tol=1e-12, max_iter=5000).fit(SCALED, KIND)  # the paper's weight is 2 / N
    W = coefficients(tmp_path, 3)
    off = 2e-2 if method == "fair-vfl" else 1e-4
    np.testing.assert_allclose(W[:, :-1], theirs.coef_, atol=off)
    np.testing.assert_allclose(W[:, -1] - W[:, -1].mean(), theirs.intercept_ - theirs.intercept_.mean(), atol=off)
    found = predicted(tmp_path)
    decided = [CLASSES[k] for k in theirs.predict(SCALED)]
    assert np.mean([row["class"] == word for row, word in zip(found, decided, strict=True)]) > 0.99
    probability = [[float(row[f"probability of {name}"]) for name in CLASSES] for row in found]
    np.testing.assert_allclose(probability, theirs.predict_proba(SCALED), atol=off)
    [told] = record.measured
    assert told.numbers["accuracy"] == pytest.approx(
        np.mean([r["class"] == w for r, w in zip(found, words, strict=True)])
    )


def test_gaps_of_several_attributes_of_several_classes(tmp_path: Path) -> None:
    job = write_job(
        tmp_path,
        [CLASSES[k] for k in KIND],
        STATED,
        "max_gap = 0.03",
        'gap = "all"',
        tables='[attributes]\nsex = ["F", "M"]\nage = ["young", "middle", "old"]\n',
    )
    record = run_job(read_job(job))
    assert record.solved, record.reason
    groups = {"sex": np.array(["F", "M"])[SEX], "age": np.array(AGES)[AGE]}
    asked = pooled(KIND, groups, 0.03, loss="softmax", gap="all")
    exact = reference(asked)
    W = coefficients(tmp_path, 3)
    assert record.objective == pytest.approx(exact.objective, abs=1e-6)
    assert len(record.bounded) == 4  # of sex one, of age three
    values = np.abs(asked.scored.gaps((np.column_stack([SCALED, np.ones(N)]) @ W.T).T.ravel()))
    np.testing.assert_allclose(sorted(one.value for one in record.bounded), sorted(values), atol=1e-6)
    assert max(values) == pytest.approx(0.03, abs=1e-6)
    prices = [one.price for one in record.bounded]
    assert max(prices) == pytest.approx(float(np.max(exact.multipliers[0])), abs=1e-3)
    [told] = record.measured
    assert told.numbers["rows, age = old"] == np.sum(AGE == 2)
    assert told.numbers["rows, sex = M"] == np.sum(SEX == 1)


@pytest.mark.parametrize("loss", NUMBERS)
def test_numbers_are_predicted(tmp_path: Path, loss: str) -> None:
    y = NUMBERS[loss]
    lines = (f'loss = "{loss}"', 'group = "sex"', 'groups = ["F", "M"]', "max_gap = 0.01", 'gap = "all"')
    job = write_job(tmp_path, [repr(float(value)) for value in y], *lines)
    record = run_job(read_job(job))
    assert record.solved, record.reason
    exact = reference(pooled(y, SEX, 0.01, loss=loss, gap="all"))
    np.testing.assert_allclose(coefficients(tmp_path, 1)[0], exact.w, atol=1e-4)
    scores = np.column_stack([SCALED, np.ones(N)]) @ exact.w
    expected = np.exp(scores) if loss == "poisson" else scores
    found = [float(row["prediction"]) for row in predicted(tmp_path)]
    np.testing.assert_allclose(found, expected, atol=1e-3)
    [told] = record.measured
    error = expected - y
    assert told.numbers["root mean squared error"] == pytest.approx(np.sqrt(np.mean(error**2)), abs=1e-3)
    assert told.numbers["mean error, sex = M"] == pytest.approx(np.mean(error[SEX == 1]), abs=1e-3)
    report = CliRunner().invoke(cli, ["report", str(tmp_path / "run")])
    assert report.exit_code == 0, report.output


def test_decisions_between_several_classes(tmp_path: Path) -> None:
    """The list of constraints: the recall of a class and a gap in it between groups, counted on the pieces' scores."""
    lines = (STATED, 'group = "sex"', 'groups = ["F", "M"]')
    listed = """
[[constraint]]
kind = "recall"
of = "some"
at_least = 0.6

[[constraint]]
kind = "recall"
gap = true
of = "none"
at_most = 0.05
"""
    job = write_job(tmp_path, [CLASSES[k] for k in KIND], *lines, tables=listed, solve="tol = 1e-4")
    record = run_job(read_job(job))
    assert record.solved, record.reason
    W = coefficients(tmp_path, 3)
    decided = np.argmax(np.column_stack([SCALED, np.ones(N)]) @ W.T, axis=1)
    recall, gap = record.bounded
    assert recall.value == pytest.approx(np.mean(decided[KIND == 1] == 1))
    assert recall.value >= 0.6
    rates = [np.mean(decided[(KIND == 0) & (g == SEX)] == 0) for g in (0, 1)]
    assert gap.value == pytest.approx(abs(rates[0] - rates[1]))
    assert gap.value <= 0.05 + gap.allowed


def test_gaps_in_decisions_between_the_groups_of_several_attributes(tmp_path: Path) -> None:
    """An entry bounds the gaps of both attributes, another that of sex alone; all are counted on the pieces' scores."""
    label = ["yes" if one > 0 else "no" for one in NUMBERS["squared"]]
    listed = """
[[constraint]]
kind = "demographic_parity"
at_most = 0.02

[[constraint]]
kind = "recall"
gap = true
between = "sex"
at_most = 0.02
"""
    job = write_job(tmp_path, label, 'classes = ["no", "yes"]', tables=listed + BOTH, solve="tol = 1e-4")
    record = run_job(read_job(job))
    assert record.solved, record.reason
    decided = np.column_stack([SCALED, np.ones(N)]) @ coefficients(tmp_path, 1)[0] > 0
    positive = NUMBERS["squared"] > 0
    expected = {}
    for name, codes, levels in (("sex", SEX, "FM"), ("age", AGE, AGES)):
        for a, b in combinations(range(len(levels)), 2):
            rates = [np.mean(decided[codes == g]) for g in (a, b)]
            words = f"gap in selection rate of label = yes between {name} = {levels[a]} and {levels[b]}"
            expected[words] = (abs(rates[0] - rates[1]), 0.02)
    rates = [np.mean(decided[positive & (g == SEX)]) for g in (0, 1)]
    expected["gap in recall of label = yes between sex = F and M"] = (abs(rates[0] - rates[1]), 0.02)
    assert {one.what: (pytest.approx(one.value), one.bound) for one in record.bounded} == expected
    assert all(one.value <= one.bound + one.allowed for one in record.bounded)
    free = fp.solve(pooled(positive.astype(int)), tol=1e-6)
    plain = np.column_stack([SCALED, np.ones(N)]) @ free.w > 0
    assert abs(np.mean(plain[AGE == 0]) - np.mean(plain[AGE == 1])) > 0.08  # the bounds do something


def test_promises_about_gaps_of_several_attributes_are_tested_on_people_held_out(tmp_path: Path) -> None:
    """Too few people bear a narrow gap out, and the run says so; a wide one is kept."""
    label = ["yes" if one > 0 else "no" for one in NUMBERS["squared"]]
    listed = '[[constraint]]\nkind = "demographic_parity"\nat_most = {}\nconfidence = 0.8\n'
    statuses = {}
    for bound in (0.7, 0.05):
        folder = tmp_path / str(bound)
        folder.mkdir()
        job = write_job(
            folder, label, 'classes = ["no", "yes"]', tables=listed.format(bound) + BOTH, solve="tol = 1e-3"
        )
        record = run_job(read_job(job))
        statuses[bound] = record.status
        assert len(record.bounded) == 4
        assert {one.promise for one in record.bounded} == {"made" if bound == 0.7 else "not made"}
    assert statuses == {0.7: "solved", 0.05: "unproven"}


# ------------------------------------------------------------------------------------------------------------ misuse


def code_of(job: Path) -> str:
    done = CliRunner().invoke(cli, ["run", str(job)])
    assert isinstance(done.exception, FedpactError), done.output
    return done.exception.code


RECALL = '[[constraint]]\nkind = "recall"\nat_least = 0.8\n'
GAP = '[[constraint]]\nkind = "recall"\ngap = true\nat_most = 0.1\n'
BOTH = '[attributes]\nsex = ["F", "M"]\nage = ["young", "middle", "old"]\n'


@pytest.mark.parametrize(
    ("lines", "tables", "code"),
    [
        (('loss = "squared"',), RECALL, "FP-OPTION-982"),
        ((STATED,), GAP + 'between = "town"\n' + BOTH, "FP-OPTION-815"),
        ((STATED, 'group = "sex"', 'groups = ["F", "M"]'), GAP + 'between = "age"\n', "FP-OPTION-815"),
        ((STATED,), BOTH, "FP-OPTION-924"),
        ((STATED, "max_gap = 0.1", 'group_at = "shop"'), BOTH, "FP-OPTION-946"),
    ],
)
def test_a_job_that_contradicts_itself(tmp_path: Path, lines: tuple[str, ...], tables: str, code: str) -> None:
    assert code_of(write_job(tmp_path, [CLASSES[k] for k in KIND], *lines, tables=tables)) == code


def test_a_site_is_asked_about_every_attribute() -> None:
    task = {"columns": {"bank": ["x"]}, "label": "ill", "label_at": "bank", "group_at": "bank"}
    several = {**task, "group": "", "attributes": {"sex": ["F", "M"], "age": ["old", "young"]}}
    assert columns_sent(several, "bank") == {"ill", "sex", "age"}
    assert columns_sent({**several, "group_at": "shop"}, "shop") == {"sex", "age"}
    assert columns_sent(several, "shop") == set()
