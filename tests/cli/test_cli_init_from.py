"""`fedpact init --from`: a job of one's own table, which runs as it stands."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from raising import raises_code

from fedpact.cli.init import init
from fedpact.cli.main import cli
from fedpact.jobs import read_job
from fedpact.tasks import Classification, Regression

rng = np.random.default_rng(3)


def write(path: Path, header: str = "number,dose,colour,note,ill\n") -> Path:
    """160 people: a number, a measurement and a text that are absent at times, an id and a label."""
    rows = []
    for i in range(160):
        ill = "yes" if rng.random() < 0.3 else "no"
        dose = "" if i % 10 == 3 else f"{rng.normal():.2f}"
        colour = ("red", "blue", "?")[i % 3]
        rows.append(f"{i + 1},{dose},{colour},text {i},{ill}\n")
    path.write_text(header + "".join(rows))
    return path


def make(folder: Path, *arguments: str) -> Path:
    done = CliRunner().invoke(init, [str(folder), "--from", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return folder / "job.toml"


def test_columns_are_taken_for_what_they_are(tmp_path):
    task = read_job(make(tmp_path / "job", str(write(tmp_path / "people.csv")))).task
    assert isinstance(task, Classification)
    assert task.label == "ill"
    assert task.classes == ("no", "yes")
    assert task.columns == ("dose", "colour")
    assert task.categories == {"colour": ("blue", "red")}
    assert task.missing == "mean"
    (constraint,) = task.constraints
    assert (constraint.kind, constraint.of, constraint.at_least) == ("recall", "yes", 0.8)


def test_the_job_runs_as_it_stands(tmp_path):
    job = make(tmp_path / "job", str(write(tmp_path / "people.csv")))
    done = CliRunner().invoke(cli, ["run", str(job)])
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(cli, ["report", str(job.parent / "run")]).exit_code == 0


def test_a_label_of_many_numbers_is_a_regression(tmp_path):
    table = tmp_path / "doses.csv"
    table.write_text("age,dose\n" + "".join(f"{a:.3f},{2 * a:.3f}\n" for a in rng.normal(size=50)))
    file = read_job(make(tmp_path / "job", str(table), "--label", "age"))
    assert isinstance(file.task, Regression)
    assert file.task.columns == ("dose",)


def test_a_table_without_a_header_is_copied_with_one(tmp_path):
    table = write(tmp_path / "people.data", header="")
    before = table.read_text()
    job = make(tmp_path / "job", str(table))
    assert table.read_text() == before
    assert (job.parent / "people.csv").read_text() == "column 1,column 2,column 3,column 4,column 5\n" + before
    assert read_job(job).task.label == "column 5"


@pytest.mark.slow
def test_adult_runs_with_no_editing(tmp_path, data_folder):
    job = make(tmp_path / "adult", str(data_folder / "adult.data"))
    assert CliRunner().invoke(cli, ["run", str(job)]).exit_code == 0
    assert CliRunner().invoke(cli, ["report", str(job.parent / "run")]).exit_code == 0


@pytest.mark.parametrize(
    ("text", "arguments", "code", "facts"),
    [
        ("a,y\n1,0\n2,1\n", ["--label", "x"], "FP-DATA-001", ["'x'", "a, y"]),
        ("a,y\n1,0\n1,1\n", [], "FP-DATA-940", ["'a': it holds one value only"]),
        ("a,y\n1,u\n3,\n", [], "FP-DATA-941", ["'y'"]),
        ("a,y\n1,u\n3,u\n", [], "FP-DATA-942", ["'y'", "'u'"]),
        ("a,y\n" + "".join(f"{i % 60},t{i}\n" for i in range(120)), [], "FP-DATA-943", ["'y'", "120"]),
    ],
)
def test_a_table_that_makes_no_job(tmp_path, text, arguments, code, facts):
    table = tmp_path / "table.csv"
    table.write_text(text)
    with raises_code(code, f"{table}", *facts):
        CliRunner().invoke(init, [str(tmp_path / "job"), "--from", str(table), *arguments], catch_exceptions=False)
    assert not (tmp_path / "job" / "job.toml").exists()


def test_columns_that_give_the_label_away_are_left_out_and_named(tmp_path):
    """PF_0 = 1 - PF_1 beside the label had given an accuracy of 1.000 and a green report."""
    rng = np.random.default_rng(3)
    lines = ["id,age,PF_0,stage,follow_up,PF_1"]
    for k in range(60):
        y = int(rng.random() < 0.4)
        lines.append(
            f"{5000 + 7 * k},{rng.normal(50, 9):.1f},{1 - y},{'late' if y else 'early'},{rng.random():.2f},{y}"
        )
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    done = CliRunner().invoke(cli, ["init", str(tmp_path / "x"), "--from", str(tmp_path / "rows.csv")])
    assert done.exit_code == 0, done.output
    job = (tmp_path / "x" / "job.toml").read_text()
    assert 'features = ["age"]' in job
    for column in ("id", "PF_0", "stage", "follow_up"):
        assert f'left out: "{column}", it ' in job
        assert f'left out: "{column}", it ' in done.output


def test_a_run_that_is_right_about_every_row_warns_of_it(tmp_path):
    lines = ["age,other,y", *(f"{k % 17},{k % 2},{k % 2}" for k in range(80))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "job.toml").write_text(
        'task = "classification"\nlabel = "y"\nclasses = ["0", "1"]\nfeatures = ["age", "other"]\n'
        "regularization = 0.01\n"
        '[owners]\na = "rows.csv"\n[[constraint]]\nkind = "recall"\nof = "1"\nat_least = 0.8\n'
    )
    done = CliRunner().invoke(cli, ["run", str(tmp_path / "job.toml")])
    assert "WARNING: The model is right about every row" in done.output
    assert CliRunner().invoke(cli, ["report", str(tmp_path / "run")]).exit_code == 0
    assert "right about every row" in (tmp_path / "run" / "report.html").read_text()
