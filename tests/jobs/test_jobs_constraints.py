"""The list of constraints of a job: what is stated arrives, every mistake has its line, and none is needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from job_files import change
from raising import raises_code

from fedpact.cli.main import cli
from fedpact.data.cells import read_cells
from fedpact.jobs import read_job, run_job
from fedpact.jobs.job_text import key_lines
from fedpact.tasks import Requirement, load_model

#: Three tables, so that a mistake can be in the second.
LIST = """
[[constraint]]
kind = "recall"
at_least = {north = 0.8, south = 0.7, coast = 0.75}
of = "yes"

[[constraint]]
kind = "specificity"
at_least = 0.2
held_by = "all"

[[constraint]]
kind = "accuracy"
confidence = 0.9
[constraint.at_least]
north = 0.5
south = 0.5
coast = 0.6
"""


def classify(folder: Path, constraints: str = "") -> Path:
    """The example as a task with this list, and nothing else that is bounded."""
    change(folder, 'task = "neyman_pearson"', 'task = "classification"')
    change(folder, "\nbound = 0.35", "\n# bound = 0.35")
    job = change(folder, '\nprotected = "yes"', '\n# protected = "yes"')
    job.write_text(job.read_text() + constraints)
    return job


def test_a_list_arrives_as_it_is_stated(folder: Path) -> None:
    task = read_job(classify(folder, LIST)).task
    assert task.constraints == (
        Requirement(kind="recall", at_least={"north": 0.8, "south": 0.7, "coast": 0.75}, of="yes"),
        Requirement(kind="specificity", at_least=0.2, held_by="all"),
        Requirement(kind="accuracy", at_least={"north": 0.5, "south": 0.5, "coast": 0.6}, confidence=0.9),
    )


@pytest.mark.parametrize("method", ["accelerated", pytest.param("proximal-al", marks=pytest.mark.slow)])
def test_first_order_methods_take_what_all_owners_hold_together(folder: Path, method: str) -> None:
    """Recall over the rows of all three files together, counted by the model that comes out."""
    job = classify(folder, '\n[[constraint]]\nkind = "recall"\nof = "yes"\nat_least = 0.8\nheld_by = "all"\n')
    change(folder, "[solve]", f'[solve]\nmethod = "{method}"')
    penalties = "\n[solve.options.consensus_penalty]\nnorth = 0.5\nsouth = 0.2\ncoast = 0.3\n"
    job.write_text(job.read_text() + penalties)
    record = run_job(read_job(job))
    assert record.status == "solved"
    hits = 0
    events = 0
    model = load_model(folder / "run")
    for owner in ("north", "south", "coast"):
        cells = read_cells(folder / f"{owner}.csv")
        ill = cells.column("relapse") == "yes"
        hits += int(np.sum(model.scores(model.matrix(cells))[ill, 0] > 0))
        events += int(np.sum(ill))
    assert hits >= 0.8 * events
    assert [one.owner for one in record.bounded] == ["all owners"]


def test_classes_that_are_numbers_are_named_by_numbers(folder: Path) -> None:
    job = classify(folder, '[[constraint]]\nkind = "recall"\nof = 1\nat_least = 0.9\n')
    change(folder, 'classes = ["no", "yes"]', "classes = [0, 1]")
    assert read_job(job).task.constraints[0].of == "1"


@pytest.mark.parametrize("task", ["neyman_pearson", "group_fairness"])
def test_a_list_adds_to_what_a_task_asks_for(folder: Path, task: str) -> None:
    job = change(folder, 'task = "neyman_pearson"', f'task = "{task}"')
    if task == "group_fairness":
        change(folder, '\nprotected = "yes"', '\ngroup = "smoker"\ngroups = ["never", "former", "now"]')
        change(folder, '["age", "dose", "pressure", "smoker"]', '["age", "dose", "pressure"]')
        change(folder, '\nsmoker = ["never", "former", "now"]', "")
    job.write_text(job.read_text() + '\n[[constraint]]\nkind = "recall"\nat_least = 0.6\n')
    asked = read_job(job).task.requirements
    assert asked[0].kind == "loss"
    assert asked[-1] == Requirement(kind="recall", at_least=0.6)


#: name -> (what stands in the place of this line of LIST, code, facts); the error is in the new line
BAD: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "unknown key": ("at_least = 0.2", "atleast = 0.2", "FP-OPTION-369", ("'at_least'", "[constraint 2]")),
    "unknown kind": ('kind = "specificity"', 'kind = "specifity"', "FP-OPTION-368", ("specificity",)),
    "wrong type": ("at_least = 0.2", 'at_least = "high"', "FP-OPTION-370", ("give a number",)),
    "out of range": ("at_least = 0.2", "at_least = 20", "FP-OPTION-810", ("between 0 and 1",)),
    "unknown holder": ('held_by = "all"', 'held_by = "everyone"', "FP-OPTION-368", ("each, all, server",)),
    "no such table": ('held_by = "all"', 'held_by = "server"', "FP-OPTION-832", ("has no table",)),
    "certainty": ("confidence = 0.9", "confidence = 1", "FP-OPTION-802", ("0.95",)),
    "no such class": ('of = "yes"', 'of = "perhaps"', "FP-OPTION-813", ("no, yes",)),
    "no such owner": (
        "at_least = {north = 0.8, south = 0.7, coast = 0.75}",
        "at_least = {north = 0.8, south = 0.7, coat = 0.75}",
        "FP-OPTION-383",
        ("'coat'", "north, south, coast"),
    ),
    "an owner is left out": (
        "at_least = {north = 0.8, south = 0.7, coast = 0.75}",
        "at_least = {north = 0.8, south = 0.7}",
        "FP-OPTION-384",
        ("'coast'",),
    ),
    "no such owner in a table": ("coast = 0.6", "west = 0.6", "FP-OPTION-383", ("'west'",)),
    "a bound is no number": ("coast = 0.6", 'coast = "low"', "FP-OPTION-370", ("'low'",)),
    "bounds of owners for all together": (
        "at_least = 0.2",
        "at_least = {north = 0.2, south = 0.2, coast = 0.2}",
        "FP-OPTION-831",
        ("all owners' rows together",),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_told_with_its_line(folder: Path, name: str) -> None:
    old, new, code, facts = BAD[name]
    job = classify(folder, LIST.replace(old, new, 1))
    line = job.read_text().splitlines().index(new) + 1
    if code == "FP-OPTION-831":  # it is about two lines, and tells the one that chooses
        line += 1
    with raises_code(code, f"{job}:{line}: ", *facts):
        read_job(job)


def test_a_table_without_a_kind_is_told_with_its_line(folder: Path) -> None:
    job = classify(folder, LIST.replace('kind = "specificity"\n', ""))
    line = key_lines(job.read_text())["", "constraint 2"][0]
    with raises_code("FP-OPTION-812", f"{job}:{line}: ", "constraint 2"):
        read_job(job)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('[constraint]\nkind = "recall"\nat_least = 0.9\n', "FP-OPTION-830"),
        ('[[constraint]]\nkind = "equal_opportunity"\nat_most = 0.1\n', "FP-OPTION-822"),
        ('[[constraint]]\nkind = "recall"\n', "FP-OPTION-806"),
        ('[[constraint]]\nkind = "recall"\nkind = "accuracy"\n', "FP-OPTION-363"),
    ],
)
def test_what_cannot_be_a_list(folder: Path, text: str, code: str) -> None:
    job = classify(folder, text)
    with raises_code(code, str(job)):
        read_job(job)


def test_a_list_of_texts_is_no_list_of_constraints(folder: Path) -> None:
    job = classify(folder)
    job.write_text(f'constraint = ["recall"]\n{job.read_text()}')
    with raises_code("FP-OPTION-370", f"{job}:1: ", "[[constraint]]"):
        read_job(job)


def test_what_is_asked_is_printed_before_it_is_run(folder: Path) -> None:
    job = classify(folder, LIST)
    printed = CliRunner().invoke(cli, ["run", str(job), "--check"])
    assert printed.exit_code == 0
    said = " ".join(printed.output.split())
    assert "Recall of relapse = yes of at least its own bound at each of 3 owners" in said
    assert "specificity of relapse = yes of at least 0.2 over all owners together" in said
    assert "on rows not yet seen with confidence 0.9" in said


def read_column(path: Path, column: str) -> list[str]:
    header, *rows = [line.split(",") for line in path.read_text().splitlines()]
    return [row[header.index(column)] for row in rows]


def recall(folder: Path, owners: Sequence[str]) -> list[float]:
    """Of relapse = yes, at each owner, by the predictions of the command line."""
    found = []
    for owner in owners:
        printed = CliRunner().invoke(cli, ["predict", str(folder / "run"), str(folder / f"{owner}.csv")])
        decided = np.array([line.split(",")[0] for line in printed.output.splitlines()[1:]])
        ill = np.array(read_column(folder / f"{owner}.csv", "relapse")) == "yes"
        found.append(float(np.mean(decided[ill] == "yes")))
    return found


def test_a_model_meets_its_list(folder: Path) -> None:
    """Recall by owner, and a specificity over all of them together: counted on what the model predicts."""
    listed = LIST.partition('[[constraint]]\nkind = "accuracy"')[0]
    record = run_job(read_job(classify(folder, listed)))
    assert record.solved, record.reason
    assert np.all(np.array(recall(folder, ("north", "south", "coast"))) >= [0.8, 0.7, 0.75])


def test_constraints_of_the_example_can_be_used_as_they_stand(folder: Path) -> None:
    job = folder / "job.toml"
    head, _, rest = job.read_text().partition("# [[constraint]]")
    first, second, rest = rest.split("# [[constraint]]")
    used = "[[constraint]]" + "[[constraint]]".join([first, second]).replace("\n# ", "\n")
    job.write_text(head + used + "# [[constraint]]" + rest)
    task = read_job(job).task
    assert [one.confidence for one in task.requirements] == [0.0, 0.0, 0.95]


@pytest.mark.parametrize("method", ["ifeddr", "feddr", "fedavg", "fedprox", "scaffold", "interior-point"])
def test_a_job_without_constraints_takes_any_method(folder: Path, method: str) -> None:
    """The least loss on all rows; methods that converge agree with the exact one."""
    job = change(folder, '# method = "auto"', f'method = "{method}"\nmax_rounds = 3000')
    change(folder, "regularization = 0.001", "regularization = 0.1")
    change(folder, "tol = 1e-3", "tol = 1e-2")
    classify(folder)
    record = run_job(read_job(job))
    assert record.method == method
    assert record.bounded == ()
    assert record.asked == "Least loss on all rows, without constraints."
    if method != "fedavg":  # with fixed local steps it ends near the model, and says so
        assert record.solved, record.reason
    assert load_model(folder / "run").coefficients.shape == (1, 6)
