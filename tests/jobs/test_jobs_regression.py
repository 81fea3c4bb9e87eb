"""Jobs of regression from files: trained, told, applied to a table, signed and verified; bad tables are named."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from raising import raises_code
from sklearn.linear_model import PoissonRegressor

from fedpact.cli.main import cli
from fedpact.data.cells import read_cells
from fedpact.errors import FedpactError
from fedpact.federation.identity import Identity
from fedpact.federation.policy import SitePolicy
from fedpact.federation.rules import ABOUT_TASK, check
from fedpact.jobs import read_job, run_job
from fedpact.report.record import Record
from fedpact.tasks import Model, RegressionModel, load_model

OWNERS = ("north", "south", "coast")
JOB = """
task = "regression"
label = "claims"
features = ["age", "power", "zone"]
family = "poisson"
offset = "log_years"
regularization = 0.01
owners_weigh = "rows"
{more}

[owners]
north = "north.csv"
south = "south.csv"
coast = "coast.csv"

[categories]
zone = ["town", "village", "farm"]
{tables}

[solve]
tol = 1e-8
"""


@pytest.fixture
def insured(tmp_path: Path) -> Path:
    """A folder with the tables of three insurers: claims by age, power of the car and zone, and the years insured."""
    rng = np.random.default_rng(11)
    for k, owner in enumerate(OWNERS):
        rows = 60 + 20 * k
        age = rng.normal(45, 12, rows)
        power = rng.gamma(5.0, 15.0, rows)
        zone = rng.choice(["town", "village", "farm"], rows)
        years = rng.uniform(0.5, 4.0, rows)
        score = -0.02 * (age - 45) + 0.004 * power - 0.8 + 0.4 * (zone == "town") + 0.2 * (zone == "farm")
        claims = rng.poisson(years * np.exp(score))
        sex = rng.choice(["f", "m"], rows)
        with (tmp_path / f"{owner}.csv").open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(["id", "age", "power", "zone", "log_years", "sex", "claims"])
            lines.writerows(zip(range(rows), age, power, zone, np.log(years), sex, claims, strict=True))
    return tmp_path


def job(folder: Path, more: str = "", tables: str = "") -> Path:
    path = folder / "job.toml"
    path.write_text(JOB.format(more=more, tables=tables))
    return path


def pooled(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Encoded features of all tables, standardized where they are numbers; labels and exposures."""
    cells = [read_cells(folder / f"{owner}.csv") for owner in OWNERS]
    numbers = np.vstack([np.column_stack([c.numbers("age"), c.numbers("power")]) for c in cells])
    zones = np.concatenate([c.column("zone").cells for c in cells])
    levels = (zones[:, None] == ["town", "village", "farm"]).astype(float)
    X = np.hstack([(numbers - numbers.mean(axis=0)) / numbers.std(axis=0), levels])
    claims = np.concatenate([c.numbers("claims") for c in cells])
    return X, claims, np.exp(np.concatenate([c.numbers("log_years") for c in cells]))


def test_a_job_without_constraints_is_poisson_regression_on_all_rows(insured: Path) -> None:
    record = run_job(read_job(job(insured)))
    assert record.solved
    X, claims, exposure = pooled(insured)
    alpha = 0.01 * len(claims) / exposure.sum()
    theirs = PoissonRegressor(alpha=alpha, solver="newton-cholesky", tol=1e-12, max_iter=1000)
    theirs.fit(X, claims / exposure, sample_weight=exposure)
    model = load_model(insured / "run")
    assert isinstance(model, RegressionModel)
    ours = np.concatenate([model.predict_table(read_cells(insured / f"{owner}.csv")) for owner in OWNERS])
    np.testing.assert_allclose(ours, theirs.predict(X) * exposure, rtol=1e-6)


TABLES = """
[coefficients]
power = {at_most = 0.002}

[monotone]
zone = "increasing"
"""


def test_a_job_with_constraints_is_certified_told_and_applied(insured: Path) -> None:
    path = job(insured, 'group = "sex"\ngroups = ["f", "m"]\nmax_mean_error = 0.2', TABLES)
    found = CliRunner().invoke(cli, ["run", str(path)])
    assert found.exit_code == 0, found.output
    assert "mean error" in found.output
    record = Record.load(insured / "run")
    model = RegressionModel.load(insured / "run")
    own = dict(zip(model.encoding.names, model.coefficients[0], strict=True))
    assert own["power"] <= 0.002 + 1e-8
    assert own["zone=town"] <= own["zone=village"] + 1e-8
    assert own["zone=village"] <= own["zone=farm"] + 1e-8
    server = [one for one in record.bounded if one.owner == "server"]
    assert [one.what for one in server] == [
        "coefficient of power",
        "coefficient of zone=town less that of zone=village",
        "coefficient of zone=village less that of zone=farm",
    ]
    assert server[0].value == pytest.approx(own["power"], rel=1e-9)
    out = insured / "predicted.csv"
    for owner in OWNERS:
        assert CliRunner().invoke(
            cli, ["predict", str(insured / "run"), str(insured / f"{owner}.csv"), "--out", str(out)]
        )
        with out.open() as file:
            predictions = np.array([float(row["prediction"]) for row in csv.DictReader(file)])
        cells = read_cells(insured / f"{owner}.csv")
        error = predictions - cells.numbers("claims")
        told = next(one for one in record.measured if one.owner == owner)
        assert told.numbers["mean error"] == pytest.approx(error.mean(), abs=1e-7)
        assert told.numbers["root mean squared error"] == pytest.approx(np.sqrt(np.mean(error**2)), abs=1e-7)
        for sex in ("f", "m"):
            mean = error[np.array(cells.column("sex").cells) == sex].mean()
            one = next(one for one in record.bounded if one.owner == owner and one.what.endswith(f"sex = {sex}"))
            assert one.value == pytest.approx(abs(mean), abs=1e-7)
            assert one.value <= 0.2 + 1e-7
            assert told.numbers[f"mean error of sex = {sex}"] == pytest.approx(mean, abs=1e-7)
    assert CliRunner().invoke(cli, ["report", str(insured / "run")]).exit_code == 0


def test_a_signed_run_is_verified_and_asked_again(insured: Path) -> None:
    pytest.importorskip("cryptography", reason="needs the extra 'secure'")
    keys = "\n[keys]\n" + "".join(f'{owner} = "{owner}.key"\n' for owner in OWNERS)
    for owner in OWNERS:
        Identity.create(insured / f"{owner}.key")
    path = job(insured, "max_loss = 2.0\nl1 = 0.001", TABLES + keys)
    assert run_job(read_job(path)).solved
    assert CliRunner().invoke(cli, ["verify", str(insured / "run")]).exit_code == 0
    asked = CliRunner().invoke(cli, ["verify", str(insured / "run"), "--ask", "--job", str(path)])
    assert asked.exit_code == 0, asked.output


def test_a_run_stopped_and_resumed_gives_the_same_bits(insured: Path) -> None:
    class Stop(Exception):
        pass

    def stop(progress: object) -> None:
        raise Stop

    path = job(insured, "max_loss = 2.0")
    with pytest.raises(Stop):
        run_job(read_job(path), callbacks=[stop])
    resumed = run_job(read_job(path), resume=True)
    model = RegressionModel.load(insured / "run")
    again = run_job(read_job(path), force=True)
    assert resumed.objective == again.objective
    np.testing.assert_array_equal(RegressionModel.load(insured / "run").coefficients, model.coefficients)


def test_a_model_of_another_kind_is_not_read(insured: Path) -> None:
    run_job(read_job(job(insured)))
    with raises_code("FP-OPTION-713", "", "RegressionModel"):
        Model.load(insured / "run")


@pytest.mark.parametrize(
    ("line", "code", "facts"),
    [
        ("9,40,70,town,0.1,f,-2", "FP-DATA-711", ["'claims'", "-2", "line 62"]),
        ("9,40,70,town,0.1,f,many", "FP-DATA-003", ["'claims'", "'many'", "drop the row"]),
        ("9,40,70,town,0.1,f,", "FP-DATA-004", ["'claims'", "is empty", "drop the row"]),
        ("9,40,70,town,,f,1", "FP-DATA-004", ["'log_years'", "line 62"]),
        ("9,40,70,town,inf,f,1", "FP-DATA-005", ["'log_years'"]),
    ],
)
def test_a_bad_cell_is_named(insured: Path, line: str, code: str, facts: list[str]) -> None:
    with (insured / "north.csv").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(FedpactError) as caught:
        run_job(read_job(job(insured)))
    assert caught.value.code == code
    assert [fact for fact in facts if fact not in str(caught.value)] == []
    assert "missing =" not in str(caught.value)  # no imputation of a label


@pytest.mark.parametrize("value", ["-1.0", "0.0"])
def test_weights_of_rows_are_checked(insured: Path, value: str) -> None:
    text = (insured / "north.csv").read_text().splitlines()
    written = [text[0] + ",w", *(f"{line},{value}" for line in text[1:])]
    (insured / "north.csv").write_text("\n".join(written) + "\n")
    for other in ("south", "coast"):
        text = (insured / f"{other}.csv").read_text().splitlines()
        (insured / f"{other}.csv").write_text("\n".join([text[0] + ",w", *(f"{line},1" for line in text[1:])]) + "\n")
    with raises_code("FP-DATA-710", "", "'w'"):
        run_job(read_job(job(insured, 'sample_weight = "w"')))


@pytest.mark.parametrize(
    ("more", "tables", "code", "fact"),
    [
        ("", "[max_loss]\nnorth = 1.0\nsuoth = 1.0", "FP-OPTION-383", "'suoth'"),
        ("", "[max_gap]\nnorth = 1.0\nwest = 1.0", "FP-OPTION-383", "'west'"),
        ("", "[coefficients]\nheight = {at_least = 0}", "FP-OPTION-715", "'height'"),
        ("", '[coefficients]\nage = {at_least = "0"}', "FP-OPTION-370", "at_least"),
        ("", "[monotone]\nage = 1", "FP-OPTION-370", "age"),
        ('sample_weight = "years"', "", "FP-OPTION-388", "'years'"),
        ("classes = [0, 1]", "", "FP-OPTION-367", "classes"),
    ],
)
def test_a_bad_job_is_told_with_its_place(insured: Path, more: str, tables: str, code: str, fact: str) -> None:
    path = job(insured, more, tables)
    with raises_code(code, str(path), fact):
        read_job(path)


def test_a_site_that_does_not_allow_a_column_refuses_it_as_offset_or_weight(tmp_path: Path) -> None:
    site = SitePolicy(
        name="a",
        data=tmp_path,
        state=tmp_path,
        key=tmp_path,
        features=("age", "w"),
        labels=("y",),
        tasks=("regression",),
    )
    asked = {"task": "regression", "columns": ["age"], "label": "y"}
    check(site, ABOUT_TASK, {**asked, "sample_weight": "w", "offset": ""})
    for key in ("offset", "sample_weight"):
        with raises_code("FP-REFUSED-021", "a:", "'features'"):
            check(site, ABOUT_TASK, {**asked, key: "diagnosis"})
