"""Vertical jobs: parties with their own files, against the same problem with all columns in one place."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from job_files import change
from party_files import MAX_GAP, PARTIES, PEOPLE, People, make_people, write_parties, write_table
from raising import raises_code

import fedpact as fp
from fedpact.cli.main import cli
from fedpact.errors import FedpactError
from fedpact.fitting import fit
from fedpact.jobs import read_job, run_job
from fedpact.problem import Piece
from fedpact.report.assurance import BARE, INFERRED, SUMMED
from fedpact.report.record import Record
from fedpact.solvers import METHODS
from fedpact.tasks import PartyModel, Vertical, load_model


@pytest.fixture(scope="module")
def people() -> People:
    return make_people()


@pytest.fixture
def job(tmp_path: Path, people: People) -> Path:
    return write_parties(tmp_path / "x", people)


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


def code_of(done: Result) -> str:
    assert isinstance(done.exception, FedpactError), done.output
    return done.exception.code


def pieces_of(folder: Path) -> dict[str, Piece]:
    return {name: Piece.load(folder / "pieces" / f"{name}.npz") for name in PARTIES}


def scores_of(folder: Path, people: People) -> np.ndarray:
    """Of everyone, from the pieces that the parties kept."""
    model = load_model(folder)
    assert isinstance(model, PartyModel)
    parts = [piece.scores(people.X[:, list(PARTIES[name])]) for name, piece in pieces_of(folder).items()]
    return np.sum(parts, axis=0) + model.intercept[0]


# ------------------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("holder", ["bank", "server"])
@pytest.mark.parametrize("alignment", ["id", "private"])
def test_the_model_is_that_of_all_columns_in_one_place(
    tmp_path: Path, people: People, holder: str, alignment: str
) -> None:
    path = write_parties(tmp_path / "x", people, holder)
    change(path.parent, 'alignment = "id"', f'alignment = "{alignment}"')
    record = run_job(read_job(path))
    assert record.solved
    pooled = people.pooled()
    exact = fp.solve(pooled, tol=1e-8)
    w = np.concatenate([piece.theta for piece in pieces_of(path.parent / "run").values()])
    model = load_model(path.parent / "run")
    assert isinstance(model, PartyModel)
    assert np.allclose([*w, *model.intercept], exact.w, atol=1e-4)
    assert record.objective == pytest.approx(exact.objective, abs=1e-6)
    prices = fp.Solution.load(path.parent / "run" / "solution.npz").multipliers[0]
    certificate = fp.certify(pooled.pooled(), np.append(w, model.intercept), [prices, np.zeros(0)])
    assert certificate.meets((1e-6, 1e-6))
    [bounded] = record.bounded
    assert bounded.bound == MAX_GAP
    assert bounded.price == pytest.approx(float(np.max(exact.multipliers[0])), abs=1e-3)


def test_nobody_but_the_party_has_its_coefficients(job: Path) -> None:
    run_job(read_job(job))
    solution = fp.Solution.load(job.parent / "run" / "solution.npz")
    assert np.isnan(solution.w[:-1]).all()
    assert np.isfinite(solution.w[-1])


def test_labels_and_groups_leave_their_holder_only(job: Path) -> None:
    change(job.parent, "[solve]", "[solve]\nsecure_sum = true")
    run_job(read_job(job))
    sent = {one.owner: set(one.fields) for one in Record.load(job.parent / "run").sent}
    assert {"Labels.labels", "Groups.groups"} <= sent["bank"]
    for party in ("shop", "clinic"):
        assert not {"Labels.labels", "Groups.groups"} & sent[party]
    assert "Concluded.scores (masked)" in sent["shop"]


def test_measures_are_counted_row_by_row(job: Path, people: People) -> None:
    record = run_job(read_job(job))
    decided = scores_of(job.parent / "run", people) > 0
    [told] = record.measured
    women = people.sex == 0
    ill = people.y == 1
    assert told.numbers["rows"] == PEOPLE
    assert told.numbers["recall of ill = yes"] == pytest.approx(np.mean(decided[ill]))
    assert told.numbers["recall of ill = yes, sex = F"] == pytest.approx(np.mean(decided[ill & women]))
    assert told.numbers["decided yes, sex = F"] == pytest.approx(np.mean(decided[women]))


def test_the_exact_method_takes_a_handful_of_exchanges(job: Path, people: People) -> None:
    change(job.parent, "tol = 1e-6", 'tol = 1e-9\nmethod = "vertical-exact"')
    record = run_job(read_job(job))
    assert record.solved
    assert record.objective == pytest.approx(fp.solve(people.pooled(), tol=1e-8).objective, abs=1e-9)
    assert record.rounds <= 12  # alignment, columns, labels and groups, keys, then those of the method


@pytest.mark.parametrize("method", ["fair-vfl", "fedbcd"])
def test_other_methods_train_the_same_task(job: Path, method: str) -> None:
    change(job.parent, "tol = 1e-6", f'tol = 0.3\nmethod = "{method}"\nmax_rounds = 40')
    if method == "fedbcd":
        for line in ('group = "sex"\n', f"max_gap = {MAX_GAP}\n"):
            change(job.parent, line, "")
    record = run_job(read_job(job))
    assert record.method == method
    assert set(pieces_of(job.parent / "run")) == set(PARTIES)


def test_without_constraints_to_compare_with(job: Path, people: People) -> None:
    change(job.parent, "compare = false", "compare = true")
    record = run_job(read_job(job))
    free = fp.solve(people.pooled(None), tol=1e-8)
    scores = sum(
        people.pooled(None).shares[k].X @ part
        for k, part in enumerate(np.split(free.w[:-1], np.cumsum([len(c) for c in PARTIES.values()])[:-1]))
    )
    accuracy = np.mean((scores + free.w[-1] > 0) == people.y)
    [told] = record.measured
    assert told.numbers["accuracy without constraints"] == pytest.approx(accuracy)


def test_a_list_of_constraints_on_decisions(job: Path, people: People) -> None:
    change(job.parent, f"max_gap = {MAX_GAP}\n", "")
    change(job.parent, "tol = 1e-6", "tol = 1e-4")
    listed = """
[[constraint]]
kind = "equal_opportunity"
at_most = 0.05

[[constraint]]
kind = "specificity"
at_least = 0.7
"""
    job.write_text(job.read_text() + listed)
    record = run_job(read_job(job))
    assert record.solved, record.reason
    assert record.method == "vertical-exact"
    decided = scores_of(job.parent / "run", people) > 0
    ill = people.y == 1
    women = people.sex == 0
    gap, specificity = record.bounded
    assert gap.value == pytest.approx(abs(np.mean(decided[ill & women]) - np.mean(decided[ill & ~women])))
    assert gap.value <= 0.05 + gap.allowed
    assert specificity.value == pytest.approx(np.mean(~decided[~ill]))
    assert specificity.value >= 0.7


def test_stopped_and_resumed_to_the_same_bits(job: Path) -> None:
    run_job(read_job(job))
    expected = {name: piece.theta.tobytes() for name, piece in pieces_of(job.parent / "run").items()}

    def stop(progress: fp.solvers.Progress) -> bool:
        return progress.rounds > 8

    record = run_job(read_job(job), force=True, callbacks=[stop])
    assert record.status == "interrupted"
    assert run_job(read_job(job), resume=True).solved
    found = {name: piece.theta.tobytes() for name, piece in pieces_of(job.parent / "run").items()}
    assert found == expected


def test_people_who_are_not_everywhere_are_left_out_when_asked(job: Path, people: People) -> None:
    lines = (job.parent / "shop.csv").read_text().splitlines()
    (job.parent / "shop.csv").write_text("\n".join(lines[:-3]) + "\n")
    with raises_code("FP-DATA-402"):
        run_job(read_job(job))
    change(job.parent, 'alignment = "id"', 'alignment = "id"\non_missing = "drop"')
    record = run_job(read_job(job), force=True)
    assert record.measured[0].numbers["rows"] == PEOPLE - 3


def test_a_party_lists_its_columns_and_its_categories(job: Path, people: People) -> None:
    folder = job.parent
    with (folder / "shop.csv").open() as file:
        rows = list(csv.reader(file))
    towns = ["Oslo", "Rio", "Bonn"]
    write_table(
        folder / "shop.csv",
        [*rows[0], "town", "note"],
        [[*row, towns[i % 3], "free text"] for i, row in enumerate(rows[1:])],
    )
    change(folder, "[solve]", '[columns]\nbank = ["x2"]\n\n[categories]\ntown = ["Bonn", "Oslo", "Rio"]\n\n[solve]')
    record = run_job(read_job(job))
    assert record.parties["bank"] == ["x2"]
    assert record.parties["shop"] == ["x3", "x4", "x5", "x6", "town=Bonn", "town=Oslo", "town=Rio"]
    assert any("bank has one column" in note for note in record.notes)


def test_fit_takes_files_without_a_job(job: Path, people: People) -> None:
    task = Vertical(
        label="ill", label_at="bank", classes=("no", "yes"), group="sex", groups=("F", "M"), max_gap=MAX_GAP
    )
    found = fit(task, {name: job.parent / f"{name}.csv" for name in PARTIES}, tol=1e-6)
    assert found.solved
    assert found.solution.objective == pytest.approx(fp.solve(people.pooled(), tol=1e-8).objective, abs=1e-6)


# --------------------------------------------------------------------------------------------------------------- report


@pytest.mark.parametrize(("method", "words"), [("vertical-al", "masked"), ("vertical-exact", "at once")])
def test_the_report_names_columns_and_what_could_be_inferred(job: Path, method: str, words: str) -> None:
    change(job.parent, "tol = 1e-6", f'tol = 1e-4\nmethod = "{method}"')
    run_job(read_job(job))
    page = call("report", job.parent / "run", "--markdown").output
    assert "| shop | 4 | x3, x4, x5, x6 |" in page
    assert INFERRED[method] in page
    assert words in INFERRED[method] + SUMMED
    assert SUMMED in page
    for cell in (job.parent / "shop.csv").read_text().splitlines()[1].split(","):
        assert cell not in page
    assert "| all owners |" in page


def test_a_report_of_sums_that_were_not_masked_says_so(job: Path) -> None:
    change(job.parent, "tol = 1e-6", "tol = 1e-4\nsecure_sum = false")
    run_job(read_job(job))
    assert BARE in call("report", job.parent / "run", "--markdown").output


def test_every_vertical_method_says_what_could_be_inferred() -> None:
    assert {name for name, kind in METHODS.items() if kind.needs.columns} == set(INFERRED)


# ------------------------------------------------------------------------------------------------ new people, and split


def test_predictions_are_those_of_the_pieces(job: Path, people: People) -> None:
    assert run_job(read_job(job)).solved
    folder = job.parent
    tables = [part for name in PARTIES for part in ("--table", f"{name}={folder / f'{name}.csv'}")]
    done = call("predict", folder / "run", *tables)
    assert done.exit_code == 0, done.output
    lines = list(csv.DictReader(io.StringIO(done.output)))
    scores = scores_of(folder / "run", people)
    assert [line["id"] for line in lines] == [f"p{i:03d}" for i in range(PEOPLE)]
    assert [line["class"] for line in lines] == [("no", "yes")[int(score > 0)] for score in scores]
    told = np.array([float(line["probability of yes"]) for line in lines])
    assert np.allclose(told, 1 / (1 + np.exp(-scores)), atol=1e-5)


def test_an_absent_party_is_an_error_unless_allowed(job: Path, people: People) -> None:
    assert run_job(read_job(job)).solved
    folder = job.parent
    tables = [part for name in ("bank", "shop") for part in ("--table", f"{name}={folder / f'{name}.csv'}")]
    assert code_of(call("predict", folder / "run", *tables)) == "FP-OPTION-953"
    assert call("predict", folder / "run", *tables, "--absent", "clinic").exit_code == 0
    done = call("evaluate", folder / "run", *tables, "--absent", "clinic")
    assert done.exit_code == 0, done.output
    pieces = pieces_of(folder / "run")
    model = load_model(folder / "run")
    assert isinstance(model, PartyModel)
    scores = model.intercept[0] + sum(
        pieces[name].scores(people.X[:, list(PARTIES[name])]) for name in ("bank", "shop")
    )
    losses = np.log1p(np.exp(-scores))
    ill = people.y == 1
    gap = abs(losses[ill & (people.sex == 0)].mean() - losses[ill & (people.sex == 1)].mean())
    [bound] = json.loads((folder / "run" / "evaluation.json").read_text())["evaluations"][-1]["bounds"]
    assert bound["value"] == pytest.approx(gap)


@pytest.mark.parametrize("holder", ["bank", "server"])
def test_evaluation_counts_people_whom_nobody_trained_on(tmp_path: Path, people: People, holder: str) -> None:
    job = write_parties(tmp_path / "x", people, holder)
    others = make_people(seed=5)
    write_parties(tmp_path / "x" / "later", others, holder)
    held = [*PARTIES, "server"] if holder == "server" else [*PARTIES]
    files = {"server": "later/coordinator.csv"}
    lines = "".join(f'{name} = "{files.get(name, f"later/{name}.csv")}"\n' for name in held)
    job.write_text(f"{job.read_text()}\n[holdout]\n{lines}")
    assert run_job(read_job(job)).solved
    done = call("evaluate", job.parent / "run")
    assert done.exit_code == 0, done.output
    found = json.loads((job.parent / "run" / "evaluation.json").read_text())["evaluations"][-1]
    decided = scores_of(job.parent / "run", others) > 0
    assert found["rates"]["server"]["recall"]["value"] == pytest.approx(np.mean(decided[others.y == 1]))
    assert found["rates"]["server"]["accuracy"]["rows"] == PEOPLE


def test_what_split_prints_runs_as_it_is(tmp_path: Path, people: People) -> None:
    header = [*(f"x{j}" for j in range(10)), "town", "income", "sex"]
    rows = [
        [*map(float, people.X[i]), ("Oslo", "Rio")[i % 2], (">50K", "<=50K")[people.y[i]], "FM"[people.sex[i]]]
        for i in range(PEOPLE)
    ]
    write_table(tmp_path / "adult.csv", header, rows)
    out = tmp_path / "parties"
    done = call(
        "split", tmp_path / "adult.csv", "--by", "vertical", "--owners", 3, "--label", "income", "--group", "sex",
        "--out", out,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    printed = done.output.split(f"For a job in {out}:\n", 1)[1]
    (out / "job.toml").write_text(printed)
    ran = call("run", out / "job.toml")
    assert ran.exit_code == 0, ran.output
    record = Record.load(out / "run")
    assert sum(map(len, record.parties.values())) == 12
    assert record.bounded[0].value <= 0.05 + 1e-3


# ------------------------------------------------------------------------------------------------------------ bad input


def spoil(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / f"{name}.csv").read_text()
    assert old in text
    (folder / f"{name}.csv").write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "code", "line"),
    [
        ('label = "ill"\n', 'label = "sick"\n', "FP-OPTION-943", 3),
        ('label = "ill"\n', "", "FP-OPTION-943", None),
        ('group = "sex"\n', 'group = "gender"\n', "FP-OPTION-945", 5),
        ('group = "sex"\n', "", "FP-OPTION-925", 6),
        (f"max_gap = {MAX_GAP}\n", "", "FP-OPTION-924", 5),
        ('label = "ill"\n', 'label = "ill"\nlabel_at = "shop"\n', "FP-OPTION-944", 4),
        ('label = "ill"\n', 'label = "ill"\nlabel_at = "mill"\n', "FP-OPTION-947", 4),
        ('label = "ill"\n', 'label = "ill"\ngroup_at = "shop"\n', "FP-OPTION-946", 4),
        ("bank = ", "coordinator = ", "FP-OPTION-940", 11),
        ('label = "ill"\n', 'label = "ill"\nid = "number"\n', "FP-OPTION-941", 12),
        ("[solve]", '[columns]\nmill = ["x1"]\n[solve]', "FP-OPTION-948", 16),
        ("[solve]", '[columns]\nshop = ["x1"]\n[solve]', "FP-OPTION-949", 16),
        ("[solve]", '[columns]\nbank = ["ill"]\n[solve]', "FP-OPTION-926", 15),
        ('classes = ["no", "yes"]', 'classes = ["no", "yes", "?"]', "FP-DATA-981", None),
        ("compare = false\n", 'compare = false\n[attributes]\nsex = ["F", "M"]\n', "FP-OPTION-983", None),
        ('label = "ill"\n', 'label = "ill"\nloss = "huber"\n', "FP-OPTION-981", None),
        ('label = "ill"\n', 'label = "ill"\nloss = "hinge"\n', "FP-OPTION-368", 4),
        ('alignment = "id"', 'alignment = "by luck"', "FP-OPTION-368", 8),
        ("compare = false\n", 'compare = false\n[[constraint]]\nkind = "recall"\nat_least = 0.8\n', "FP-OPTION-933", 7),
        ('alignment = "id"', "least_people = 1", "FP-OPTION-923", 8),
        ("[solve]", '[keys]\nbank = "bank.csv"\n[solve]', "FP-OPTION-367", 15),
    ],
)
def test_a_job_that_contradicts_its_tables(job: Path, old: str, new: str, code: str, line: int | None) -> None:
    change(job.parent, old, new)
    done = call("run", job)
    assert code_of(done) == code
    if line is not None:
        assert f"{job}:{line}" in str(done.exception)


def test_the_label_at_two_parties(job: Path) -> None:
    spoil(job.parent, "shop", "x3", "ill")
    done = call("run", job)
    assert code_of(done) == "FP-OPTION-942"
    assert "'bank' and 'shop'" in str(done.exception)


@pytest.mark.parametrize(
    ("party", "old", "new", "code"),
    [
        ("shop", "x3", "ill", "FP-DATA-920"),
        ("bank", ",yes,", ",perhaps,", "FP-DATA-006"),
        ("bank", ",F\n", ",?\n", "FP-DATA-006"),
        ("clinic", "p007", "p008", "FP-DATA-406"),
        ("clinic", "p007", "", "FP-DATA-404"),
    ],
)
def test_tables_that_do_not_fit_are_reported_at_their_party(
    job: Path, party: str, old: str, new: str, code: str
) -> None:
    asked = read_job(job)  # before the table changes, as a site would have it
    spoil(job.parent, party, old, new)
    with raises_code(code, "", party):
        run_job(asked)


def test_a_party_without_a_column_that_a_model_could_use(job: Path) -> None:
    write_table(job.parent / "shop.csv", ["id", "note"], [[f"p{i:03d}", "text"] for i in range(PEOPLE)])
    with raises_code("FP-DATA-921"):
        run_job(read_job(job))


@pytest.mark.parametrize("alignment", ["id", "private"])
def test_ids_that_do_not_intersect(job: Path, alignment: str) -> None:
    change(job.parent, 'alignment = "id"', f'alignment = "{alignment}"\non_missing = "drop"')
    text = (job.parent / "shop.csv").read_text()
    (job.parent / "shop.csv").write_text(text.replace("\np", "\nq"))
    with raises_code("FP-DATA-403"):
        run_job(read_job(job))


def test_fewer_people_than_the_parties_ask_for(job: Path) -> None:
    change(job.parent, 'alignment = "id"', f"least_people = {PEOPLE + 1}")
    with raises_code("FP-DATA-412"):
        run_job(read_job(job))


def test_a_table_that_changed_since_the_parties_were_aligned(job: Path) -> None:
    def stop(progress: fp.solvers.Progress) -> bool:
        return progress.rounds > 8

    assert run_job(read_job(job), callbacks=[stop]).status == "interrupted"
    spoil(job.parent, "clinic", "x7,", "x7 ,")
    with raises_code("FP-CHECKPOINT-001", "clinic"):
        run_job(read_job(job), resume=True)


def test_a_table_that_changes_between_alignment_and_the_constrained_solve(job: Path) -> None:
    change(job.parent, "compare = false", "compare = true")

    def edit(progress: fp.solvers.Progress) -> None:
        """While the model without constraints is trained."""
        (job.parent / "clinic.csv").write_text(before.replace("x7,", "x7 ,", 1))

    before = (job.parent / "clinic.csv").read_text()

    with raises_code("FP-DATA-414", "clinic"):
        run_job(read_job(job), callbacks=[edit])


def test_a_party_with_two_columns_is_warned(job: Path) -> None:
    change(job.parent, "[solve]", '[columns]\nshop = ["x3", "x4"]\n\n[solve]')
    done = call("run", job)
    assert done.exit_code == 0
    assert "WARNING: shop has 2 columns" in done.output
    assert "WARNING: bank" not in done.output


def test_predict_wants_a_table_of_every_party(job: Path) -> None:
    assert run_job(read_job(job)).solved
    run = job.parent / "run"
    assert code_of(call("predict", run, job.parent / "bank.csv")) == "FP-OPTION-955"
    assert code_of(call("predict", run, "--table", f"mill={job.parent / 'bank.csv'}")) == "FP-OPTION-952"


def test_evaluation_without_the_coordinators_labels(tmp_path: Path, people: People) -> None:
    job = write_parties(tmp_path / "x", people, "server")
    assert run_job(read_job(job)).solved
    tables = [part for name in PARTIES for part in ("--table", f"{name}={job.parent / f'{name}.csv'}")]
    assert code_of(call("evaluate", job.parent / "run", *tables)) == "FP-OPTION-954"
