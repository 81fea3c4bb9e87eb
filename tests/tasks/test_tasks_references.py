"""Reference levels of columns of text: fewer columns, coefficients as differences, against lifelines and R."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact.data.cells import read_cells
from fedpact.jobs.job_file import read_job
from fedpact.tasks import Regression

#: coxph(Surv(time, cens) ~ horTh + age + menostat + tsize + tgrade + pnodes + progrec + estrec, GBSG2) in R, with
#: tgrade as treatment contrasts and ties by Efron's method, as R and lifelines report it.
COXPH = {
    "horTh=yes": (-0.3463, 0.1291),
    "age": (-0.0095, 0.0093),
    "menostat=Pre": (-0.2584, 0.1835),
    "tsize": (0.0078, 0.0039),
    "tgrade=II": (0.6361, 0.2492),
    "tgrade=III": (0.7797, 0.2685),
    "pnodes": (0.0488, 0.0074),
    "progrec": (-0.0022, 0.0006),
    "estrec": (0.0002, 0.0005),
}
LEVELS = {"horTh": ("no", "yes"), "menostat": ("Post", "Pre"), "tgrade": ("I", "II", "III")}


def cox(**more: object) -> Regression:
    columns = ("horTh", "age", "menostat", "tsize", "tgrade", "pnodes", "progrec", "estrec")
    about = {"categories": LEVELS, "standardize": True, "regularization": 0.0, **more}
    return Regression(family="cox", label="time", event="cens", columns=columns, **about)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    datasets = pytest.importorskip("lifelines.datasets")
    path = tmp_path_factory.mktemp("gbsg2") / "patients.csv"
    datasets.load_gbsg2().to_csv(path, index=False)
    return path


def test_cox_with_columns_of_text_is_that_of_r(patients: Path) -> None:
    found = fp.fit(cox(), {"clinic": patients}, tol=1e-9, inference="model")
    assert found.solved
    summary = found.summary()
    assert summary.notes == ()
    assert {one.name for one in summary.coefficients} == set(COXPH)
    for name, (estimate, se) in COXPH.items():
        assert summary[name].estimate == pytest.approx(estimate, abs=6e-5), name
        assert summary[name].se == pytest.approx(se, abs=6e-5), name


def test_another_reference_moves_the_others_by_its_coefficient(patients: Path, tmp_path: Path) -> None:
    stated = {**LEVELS, "tgrade": {"levels": ["I", "II", "III"], "reference": "II"}}
    found = fp.fit(cox(categories=stated), {"clinic": patients}, tol=1e-9, inference="model")
    summary = found.summary()
    assert summary["tgrade=I"].estimate == pytest.approx(-COXPH["tgrade=II"][0], abs=1e-4)
    assert summary["tgrade=I"].se == pytest.approx(COXPH["tgrade=II"][1], abs=1e-4)
    third = COXPH["tgrade=III"][0] - COXPH["tgrade=II"][0]
    assert summary["tgrade=III"].estimate == pytest.approx(third, abs=2e-4)
    # The model on disk has the reference, and scores tables as the one in memory.
    found.model.save(tmp_path)
    read = fp.tasks.load_model(tmp_path)
    cells = read_cells(patients)
    assert json.loads((tmp_path / "model.json").read_text())["references"]["tgrade"] == "II"
    np.testing.assert_array_equal(read.matrix(cells), found.model.matrix(cells))
    assert read.matrix(cells).shape[1] == len(COXPH)


def test_without_inference_all_levels_stay_unless_a_reference_is_stated(patients: Path) -> None:
    assert len(cox().encoding.names) == len(COXPH) + 3
    assert "tgrade=I" not in cox(references={"tgrade": "I"}).encoding.names
    assert fp.fit(cox(regularization=1e-3), {"clinic": patients}, tol=1e-6).model.encoding.references == {}


def test_levels_that_the_job_names_one_by_one_are_all_kept() -> None:
    task = cox(coefficients={"tgrade=I": {"at_most": 0.0}})
    assert task.with_references().references == {"horTh": "no", "menostat": "Post"}


def test_a_column_may_grow_from_its_reference(patients: Path) -> None:
    """Monotone in the levels: each is at least the one before, the first of which is the reference, zero."""
    falling = cox(monotone={"tgrade": "decreasing"})
    summary = fp.fit(falling, {"clinic": patients}, tol=1e-9, inference="sandwich").summary()
    for name in ("tgrade=II", "tgrade=III"):
        assert summary[name].estimate == pytest.approx(0.0, abs=1e-6)
        assert summary[name].se == 0


def test_a_linear_model_with_text_has_the_errors_of_statsmodels(tmp_path: Path) -> None:
    sm = pytest.importorskip("statsmodels.api")
    draw = np.random.default_rng(0)
    town = draw.choice(["Oslo", "Rio", "Pune"], 300)
    x = draw.standard_normal(300)
    y = x + (town == "Rio") + draw.standard_normal(300)
    lines = ["x,town,y", *(f"{a!r},{b},{c!r}" for a, b, c in zip(x.tolist(), town, y.tolist(), strict=True))]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    towns = {"town": ("Oslo", "Rio", "Pune")}
    task = Regression(label="y", columns=("x", "town"), categories=towns, regularization=0.0)
    found = fp.fit(task, {"a": tmp_path / "a.csv"}, tol=1e-10, inference="model")
    summary = found.summary()
    design = np.column_stack([x, town == "Rio", town == "Pune", np.ones(300)]).astype(float)
    reference = sm.OLS(y, design).fit()
    names = ["x", "town=Rio", "town=Pune", "intercept"]
    assert [one.name for one in summary.coefficients] == names
    np.testing.assert_allclose([summary[name].se for name in names], reference.bse, rtol=1e-7)
    assert isinstance(found.model.encoding.references, dict)


JOB = """task = "regression"
label = "y"
features = ["x", "town"]
[categories]
town = {}
[owners]
a = "a.csv"
"""


@pytest.mark.parametrize(
    ("stated", "code"),
    [
        ('{levels = ["Oslo", "Rio"], reference = "Pune"}', "FP-OPTION-280"),
        ('{reference = "Pune"}', "FP-OPTION-281"),
        ('{levels = ["Oslo"], first = "Oslo"}', "FP-OPTION-281"),
        ('"Oslo"', "FP-OPTION-370"),
    ],
)
def test_references_of_jobs_are_checked(tmp_path: Path, stated: str, code: str) -> None:
    (tmp_path / "a.csv").write_text("x,town,y\n1,Oslo,2\n")
    (tmp_path / "job.toml").write_text(JOB.format('{levels = ["Oslo", "Rio"], reference = "Rio"}'))
    task = read_job(tmp_path / "job.toml").task
    assert isinstance(task, Regression)
    assert task.encoding.names == ("x", "town=Oslo")
    (tmp_path / "job.toml").write_text(JOB.format(stated))
    with raises_code(code):
        read_job(tmp_path / "job.toml")
