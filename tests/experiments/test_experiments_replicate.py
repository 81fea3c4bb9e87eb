"""`fedpact replicate`: what it runs again and keeps, prints and writes; what decides a claim; two quick parts."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy
from click.testing import CliRunner, Result

from fedpact.cli.main import main
from fedpact.errors import DataError
from fedpact.report import figures
from fedpact_experiments.replications import fairvfl, ifeddr_fashion, ifeddr_logistic, pages, papers, softmax
from fedpact_experiments.replications import page as page_module
from fedpact_experiments.replications.command import REPLICATIONS, replicate
from fedpact_experiments.replications.findings import Claim, Findings, Verdict, all_of, opposite
from fedpact_experiments.replications.ifeddr import ARRIVED, DONE, GAP, PATIENCE, Curve, idle, until
from fedpact_experiments.replications.page import Page
from fedpact_experiments.replications.rows import Rows, Spread
from fedpact_experiments.replications.runner import Asked, Replication, Run, carry_out
from fedpact_experiments.trace import Point

DOCS = Path(__file__).parents[2] / "docs"


def run(*args: str) -> Result:
    return CliRunner().invoke(replicate, args)


# ---------------------------------------------------------------------------------------------------------------- a toy

WORDS = """
title = "A toy"
summary = "a toy"
differences = ["it is a toy of {trials}"]
[tables.all]
caption = "what it holds"
columns = ["method", "setting", "rounds"]
cells = ["{row.method}", "x", "{row.rounds}"]
text = ["setting"]
[claims.one]
where = "Figure 1"
paper = "it is so"
each = "{row.method} {row.rounds:.1f}"
ours = "it is: {each}"
[claims.two]
where = "Figure 2"
paper = "it is not"
ours = "it is"
why = "it is a toy's"
undecided = "a toy is small"
"""


@dataclass(frozen=True)
class Row:
    method: str
    rounds: int
    course: list[float]


class Toy:
    """A replication called 'toy', and what it was asked; it breaks in its second run while `broken`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "toy.toml").write_text(WORDS)
        with monkeypatch.context() as patched:
            patched.setattr(page_module, "__file__", str(folder / "page.py"))
            self.page = Page("toy")
        self.replication = Replication(self.page, Row, 2, 1, self.plan, self.read)
        self.asked: list[Asked] = []
        self.measured: list[str] = []
        self.broken = False

    def plan(self, asked: Asked, size: int) -> Iterator[Run[Row]]:
        self.asked.append(asked)
        for name, rounds in list({"a": 3, "b": 12}.items())[:size]:
            yield Run(f"run {name}", lambda name=name, rounds=rounds: [self.measure(name, rounds)])

    def measure(self, name: str, rounds: int) -> Row:
        if self.broken and name == "b":
            raise KeyboardInterrupt
        self.measured.append(name)
        return Row(name, rounds, [1.0, np.inf, 1 / 3])

    def read(self, size: int, rows: Rows[Row]) -> Findings:
        line = {"a": ([1.0, 2.0], [3.0, 0.5])}
        return Findings(
            [self.page.table("all", rows)],
            [self.page.claim("one", True, rows), self.page.claim("two", False)],
            self.page.differences(trials=self.asked[-1].trials),
            {"toy-figure": figures.panels([figures.Panel("t", "x", "y", line, log_x=True)])},
        )


@pytest.fixture
def toy(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Toy:
    made = Toy(tmp_path_factory.mktemp("toy"), monkeypatch)
    monkeypatch.setitem(REPLICATIONS, "toy", made.replication)
    monkeypatch.setattr(replicate.params[0].type, "choices", list(REPLICATIONS))
    return made


def test_the_list() -> None:
    done = run("--list")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(REPLICATIONS)
    assert all(each.page.summary in line for line, each in zip(lines, REPLICATIONS.values(), strict=True))


def test_what_is_found_is_printed_and_drawn(toy: Toy, tmp_path: Path) -> None:
    done = run("toy", "--data", "somewhere", "--out", str(tmp_path / "new"), "--trials", "7")
    assert done.exit_code == 0, done.output
    assert (toy.asked[0].folder, toy.asked[0].quick, toy.asked[0].trials) == ("somewhere", False, 7)
    assert done.stderr.splitlines()[:2] == ["run a", "run b"]
    assert re.search(r"^ a +x +3 *$", done.stdout, re.M)
    assert re.search(r"^ b +x +12 *$", done.stdout, re.M)
    assert "[agrees] Figure 1\n  paper: it is so\n  ours:  it is: a 3.0; b 12.0\n" in done.stdout
    assert "[DIFFERS] Figure 2" in done.stdout
    assert "Where this is not what the paper did:\n- it is a toy of 7\n" in done.stdout
    assert (tmp_path / "new" / "toy-figure.svg").read_text().count("<svg") == 1
    assert f"wrote {tmp_path / 'new' / 'toy-figure.svg'}" in done.stderr
    assert f"wrote {tmp_path / 'new' / 'toy.md'}" in done.stderr
    lines = (tmp_path / "new" / "toy.md").read_text().splitlines()
    assert lines[0] == "# A toy"
    typed = f"fedpact replicate toy --data DIR --out {tmp_path / 'new'} --trials 7"
    assert lines[5] == typed  # the folder of data is one's own
    for text in (f"NumPy {np.__version__}", f"SciPy {scipy.__version__}", "fedpact "):
        assert text in lines[2]
    for line in (
        "| b | x | 12 |",
        "what it holds",
        "![toy figure](toy-figure.svg)",
        "- **agrees**: Figure 1",
        "- **DIFFERS**: Figure 2",
        "  - why: it is a toy's",
        "- it is a toy of 7",
    ):
        assert lines.count(line) == 1, line


def test_quick_decides_nothing_and_markdown_is_markdown(toy: Toy, tmp_path: Path) -> None:
    done = run("toy", "--quick", "--markdown", "--out", str(tmp_path))
    assert toy.asked[0].quick
    assert toy.measured == ["a"]
    assert "| a | x | 3 |" in done.stdout
    assert done.stdout.count("[not decided]") == 2
    assert "on which no claim is decided" in done.stdout
    page = (tmp_path / "toy.md").read_text()
    assert page.count("**not decided**") == 2
    assert "why" not in page
    assert f"fedpact replicate toy --out {tmp_path} --quick --markdown\n" in page


def test_finished_runs_are_kept_and_not_made_again(toy: Toy, tmp_path: Path) -> None:
    toy.broken = True
    assert run("toy", "--out", str(tmp_path)).exit_code == 1
    assert toy.measured == ["a"]
    toy.broken = False
    assert run("toy", "--out", str(tmp_path), "--resume").exit_code == 0
    assert toy.measured == ["a", "b"]
    page = (tmp_path / "toy.md").read_text()
    done = run("toy", "--out", str(tmp_path), "--resume")  # all are known: the page is written again from the file
    assert toy.measured == ["a", "b"]
    assert "run a" not in done.stderr
    assert (tmp_path / "toy.md").read_text() == page
    assert "--resume" not in page
    assert run("toy", "--out", str(tmp_path)).exit_code == 0
    assert toy.measured == ["a", "b", "a", "b"]


def test_what_is_kept_comes_back_to_the_bit(toy: Toy, tmp_path: Path) -> None:
    file = tmp_path / "toy.jsonl"
    seen: list[Rows[Row]] = []
    noting = replace(toy.replication, read=lambda size, rows: seen.append(rows) or toy.read(size, rows))
    for resume in (False, True):
        carry_out(noting, Asked(), file, resume)
    assert seen[0] == seen[1] == [Row("a", 3, [1.0, np.inf, 1 / 3]), Row("b", 12, [1.0, np.inf, 1 / 3])]
    file.write_text(file.read_text()[:-20])  # killed while it wrote the last run down
    carry_out(noting, Asked(), file, resume=True)
    assert toy.measured == ["a", "b", "b"]
    assert seen[2] == seen[0]
    assert [json.loads(line).get("run") for line in file.read_text().splitlines()] == [None, "run a", "run b"]


def test_runs_of_other_options_are_not_resumed(toy: Toy, tmp_path: Path) -> None:
    carry_out(toy.replication, Asked(trials=3), tmp_path / "toy.jsonl")
    with pytest.raises(DataError, match=r"holds runs of .*'trials': 3.*leave --resume out"):
        carry_out(toy.replication, Asked(trials=4), tmp_path / "toy.jsonl", resume=True)


def test_remarks_outlive_a_run(toy: Toy, tmp_path: Path) -> None:
    page = tmp_path / "toy.md"
    page.write_text("# An older toy\n\n## Remarks\n\nIt was fun.\n")
    assert run("toy", "--out", str(tmp_path)).exit_code == 0
    text = page.read_text()
    assert text.startswith("# A toy\n")
    assert text.endswith("\n- it is a toy of None\n\n## Remarks\n\nIt was fun.\n")
    assert "older" not in text


def test_the_list_of_all_pages(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedpact_experiments.replications.command.REPLICATIONS", {"toy": toy.replication})
    folder = tmp_path / "pages"
    assert run("toy", "--out", str(folder)).exit_code == 0
    done = run("--index", str(folder))
    assert done.exit_code == 0, done.output
    listed = (tmp_path / "pages.md").read_text()
    assert "| [toy](pages/toy.md) | A toy | 1 | 0 | 1 | 0 |\n" in listed
    assert "- **DIFFERS**: Figure 2\n  - paper: it is not\n  - ours: it is\n  - why: it is a toy's\n" in listed
    assert "Figure 1" not in listed
    (folder / "toy.md").write_text("# By hand\n")
    assert "has no command" in str(run("--index", str(folder)).exception)
    (folder / "toy.md").unlink()
    assert "run: fedpact replicate toy --out" in str(run("--index", str(folder)).exception)


def test_the_pages_of_the_docs_are_of_full_runs_and_all_are_listed() -> None:
    """REPLICATIONS, the pages of their full runs and the list made from them are one and the same."""
    folder = DOCS / "replications"
    made = pages.index(folder, REPLICATIONS, "fedpact replicate --index docs/replications")
    assert made == (DOCS / "replications.md").read_text()  # if not: run that command
    for name in REPLICATIONS:
        typed = rf"^fedpact replicate {name} .*--out docs/replications.*$"
        command = re.search(typed, (folder / f"{name}.md").read_text(), re.M)
        assert command is not None
        assert "--quick" not in command.group()


@pytest.mark.parametrize("name", [name for name in REPLICATIONS if name != "toy"])
def test_the_page_of_the_docs_has_the_words_of_the_code(name: str) -> None:
    """Titles, columns of tables, and what the paper claims: all that does not hang on numbers."""
    page = REPLICATIONS[name].page
    text = (DOCS / "replications" / f"{name}.md").read_text()
    assert text.startswith(f"# {page.title}\n")
    for table in page._words["tables"].values():
        if not any("{" in column for column in table["columns"]):
            assert f"| {' | '.join(table['columns'])} |" in text
    for claim in page._words["claims"].values():
        if "{" not in claim.get("paper", "{"):
            assert f"  - paper: {claim['paper']}\n" in text


def test_an_unknown_name_and_missing_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("nonsense").exit_code == 2
    monkeypatch.delenv("FEDPACT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        sys, "argv", ["fedpact", "replicate", "ifeddr-fair", "--data", str(tmp_path), "--out", str(tmp_path)]
    )
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "fedpact: data file 'cifar10_efficientnetlite0_features.npz' not found" in capsys.readouterr().err


def test_without_matplotlib_nothing_is_run(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = run("toy")
    assert done.exit_code == 1
    assert "pip install '.[plot]'" in str(done.exception)
    assert toy.asked == []


def test_long_lines_are_drawn_with_few_points() -> None:
    x = list(range(1, 100_001))
    figure = figures.panels(
        [figures.Panel("t", "x", "y", {"a": (x, x)}, log_x=log) for log in (True, False)]
        + [figures.Panel("u", "x", "y", {})],
        columns=2,
    )
    for axes in figure.axes[:2]:
        (line,) = axes.lines
        drawn = line.get_xdata()
        assert 150 < len(drawn) <= figures.POINTS
        assert (drawn[0], drawn[-1]) == (1, 100_000)
        np.testing.assert_array_equal(line.get_ydata(), drawn)


def test_the_papers_tables_are_as_printed() -> None:
    tables = {file.stem: file.read_text().splitlines() for file in Path(papers.__file__).parent.glob("*.csv")}
    assert len(tables) == 8
    assert papers.table("he24_table_4", keys=2)[5, 300]["difference"] == "1.36e-3 (9.62e-6)"
    assert papers.table("he24_conic_table_2", keys=2)["adult", 20]["objective 3"] == "0.8173"
    assert papers.table("fairvfl_table_1", keys=2)["C&C", "EO"] == {
        "accuracy": "80.3", "fairness": "60.1", "harmonic": "68.5"
    }  # fmt: skip


def test_rows_are_chosen_by_their_fields() -> None:
    rows = Rows([Row("a", 1, []), Row("b", 2, []), Row("a", 3, [])])
    assert rows.where(method="a").of("rounds") == [1, 3]
    assert rows.one(method="b") is rows[1]
    assert {key: seen.of("rounds") for key, seen in rows.by("method").items()} == {("a",): [1, 3], ("b",): [2]}
    assert f"{rows.spread('rounds'):.2f}" == f"2.00 ({np.sqrt(2 / 3):.1e})"
    assert f"{Spread([4.0]):g}" == "4"


# ------------------------------------------------------------------------------------------------- what decides a claim


@pytest.mark.parametrize(
    ("verdicts", "all_together"),
    [((True, True), True), ((True, None), None), ((None, False), False), ((True, False), False), ((), True)],
)
def test_all_of_several_verdicts(verdicts: tuple[Verdict, ...], all_together: Verdict) -> None:
    assert all_of(*verdicts) is all_together
    assert [opposite(verdict) for verdict in (True, False, None)] == [False, True, None]


def test_a_reason_is_told_where_a_claim_is_not_known_to_hold() -> None:
    told = {
        agrees: "why" in Claim(where="", ours="", agrees=agrees, why="so").statements()
        for agrees in (True, False, None)
    }
    assert told == {True: False, False: True, None: True}


def test_what_differs_and_what_is_not_decided_have_reasons_of_their_own(toy: Toy) -> None:
    reasons = {agrees: toy.page.claim("two", agrees).statements().get("why") for agrees in (True, False, None)}
    assert reasons == {True: None, False: "it is a toy's", None: "a toy is small"}


def curve(*gaps: float, label: str = "a", part: str = "") -> Curve:
    rounds = list(range(len(gaps)))
    exchanges = [k + 1 for k in rounds]
    return Curve(part, "vehicle", label, "", 23, 100, exchanges, [float(k) for k in rounds], {GAP: list(gaps)})


def falling(end: float, rounds: int = 20) -> list[float]:
    return list(np.geomspace(0.5, end, rounds))


STALLED = [0.1] * (2 * PATIENCE)


def test_when_a_run_has_stalled() -> None:
    slowly = [0.98**k for k in range(300)]
    flat = slowly[:150] + 150 * [slowly[150]]
    assert not idle(slowly)
    assert idle(flat)
    assert not idle([1.0] * PATIENCE)
    assert curve(*flat).stalled
    assert not curve(*(DONE / 2 for _ in range(300))).stalled
    assert curve(1.0, np.nan).last == np.inf

    def points(gaps: list[float]) -> list[Point]:
        return [Point(k, k + 1, (k,), (0,), value) for k, value in enumerate(gaps)]

    assert until(10, 999)(points(slowly[:11]))
    assert not until(10, 999)(points(slowly[:10]))
    assert until(999, 10)(points(slowly[:11]))
    assert until(999, 999)(points([1.0, DONE]))
    assert until(999, 999)(points(flat))


def test_only_a_run_that_arrived_or_stalled_decides_whether_it_converges() -> None:
    assert curve(*falling(ARRIVED / 2)).converges is True
    assert curve(*falling(10 * ARRIVED)).converges is None
    assert curve(*STALLED).converges is False
    assert curve(*falling(ARRIVED / 2), *(300 * [ARRIVED / 2])).converges is True  # there, before it came to rest


SHORT, LONG, FROM_P = "feddr tau 10, start s", "feddr tau 100, start s", "feddr tau 10, start p"


def verdicts(**ends: list[float]) -> dict[str, str]:
    """The verdicts of the claims about convergence: what the paper says -> the verdict."""
    names = {"short": SHORT, "long": LONG, "from_p": FROM_P, "paper": "ifeddr, paper", "automatic": "ifeddr"}
    runs = {names[name]: curve(*gaps, label=names[name]) for name, gaps in ends.items()}
    return {claim.paper: claim.verdict for claim in ifeddr_logistic._claims("vehicle", runs)}


def test_agreement_with_numbers_that_were_in_view_is_called_fitted() -> None:
    said = [Claim(where="Table I", ours="-", agrees=agrees, fitted=True).verdict for agrees in (True, False, None)]
    assert said == ["fitted", "DIFFERS", "not decided"]
    page = Path(__file__).parents[2] / "docs" / "replications" / "fairvfl.md"
    for key in ("near", "post"):
        given = {"data": "ADULT", "near": (1.5, 4), "both": 1, "cases": 1}
        assert fairvfl.PAGE.claim(key, True, **given).verdict == "fitted"
    table = [line for line in page.read_text().splitlines() if line.startswith("- **") and ": Table I" in line]
    assert table
    assert not any(line.startswith("- **agrees**") for line in table)


@pytest.mark.parametrize(("gaps", "verdict"), [(falling(2 * ARRIVED), "not decided"), (STALLED, "agrees")])
def test_accuracy_while_the_loss_still_falls_decides_nothing(
    gaps: list[float], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("fedavg", "ifeddr, paper", "ifeddr")
    runs = [SimpleNamespace(run=curve(*gaps, label=kind), tested=80.0) for kind in kinds]
    monkeypatch.setattr(softmax, "read_runs", lambda *_: runs)
    monkeypatch.setattr(softmax, "table", lambda *_: None)
    monkeypatch.setattr(softmax, "figure", lambda *_: None)
    rows = SimpleNamespace(where=lambda **_: None, one=lambda **_: None)
    found = ifeddr_fashion.read(ifeddr_fashion.FULL, rows)  # type: ignore[arg-type]
    assert found.claims[0].verdict == verdict


def test_a_run_that_only_did_not_stall_does_not_agree() -> None:
    slow = falling(50 * ARRIVED)
    found = verdicts(short=slow, long=slow, from_p=slow, paper=slow, automatic=falling(ARRIVED))
    assert set(found.values()) == {"not decided"}
    there = falling(ARRIVED)
    found = verdicts(short=STALLED, long=there, from_p=there, paper=there, automatic=there)
    assert [verdict for paper, verdict in found.items() if paper != "-"] == 4 * ["agrees"]
    found = verdicts(short=there, long=STALLED, from_p=there, paper=STALLED, automatic=there)
    assert [verdict for paper, verdict in found.items() if paper != "-"] == 4 * ["DIFFERS"]


@pytest.mark.parametrize(
    ("run", "other", "as_fast"),
    [
        (falling(ARRIVED, 20), falling(ARRIVED, 30), True),
        (falling(ARRIVED, 30), falling(ARRIVED, 20), False),
        (falling(ARRIVED, 20), falling(2 * ARRIVED, 30), True),
        (falling(ARRIVED, 20), falling(2 * ARRIVED, 10), None),  # it might have arrived earlier
        (falling(2 * ARRIVED, 30), falling(ARRIVED, 20), False),
        (falling(2 * ARRIVED, 10), falling(ARRIVED, 20), None),
        (STALLED, falling(ARRIVED, 900), False),
        (falling(2 * ARRIVED), falling(2 * ARRIVED), None),
    ],
)
def test_a_run_that_ended_early_is_not_slower(run: list[float], other: list[float], as_fast: Verdict) -> None:
    assert ifeddr_logistic._as_fast(curve(*run), curve(*other)) is as_fast


@pytest.mark.parametrize(
    ("from_s", "others", "verdict"),
    [
        (STALLED, 3 * [falling(ARRIVED)], "agrees"),
        (STALLED, [falling(ARRIVED), falling(2 * ARRIVED), falling(ARRIVED)], "not decided"),
        (STALLED, [falling(ARRIVED), STALLED, falling(ARRIVED)], "DIFFERS"),
        (falling(2 * ARRIVED), 3 * [falling(ARRIVED)], "not decided"),
    ],
)
def test_the_stall_of_feddr_needs_the_others_to_arrive(
    from_s: list[float], others: list[list[float]], verdict: str
) -> None:
    found = Findings()
    runs = Rows(curve(*gaps, label=f"run {k}") for k, gaps in enumerate([from_s, *others]))
    ifeddr_logistic._read_stall(found, runs, ifeddr_logistic.QUICK)
    assert [claim.verdict for claim in found.claims] == [verdict]


# ---------------------------------------------------------------------------------------------------- two quick parts


@pytest.mark.slow
def test_the_quick_part_of_ifeddr_logistic(data_folder: Path, tmp_path: Path) -> None:
    done = run("ifeddr-logistic", "--quick", "--data", str(data_folder), "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    found = {
        line.split("  ")[0].strip(): float(match.group())
        for line in done.stdout.splitlines()
        if (match := re.search(r"\d\.\de[-+]\d\d", line)) and "   " in line
    }
    for method in ("fedavg", "scaffold", "fedprox", "feddr tau 10, start s", "ifeddr, paper", "ifeddr"):
        assert 0 < found[method] < 0.6  # ln 2 - f* is where all begin
    assert found["ifeddr"] < found["ifeddr, paper"]
    written = [
        "ifeddr-logistic-ablation.svg",
        "ifeddr-logistic-stall.svg",
        "ifeddr-logistic.jsonl",
        "ifeddr-logistic.md",
        "ifeddr-logistic.svg",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == written
    assert "f* = 0.18136960" in done.stdout


@pytest.mark.slow
def test_the_quick_part_of_ifeddr_fair(data_folder: Path, tmp_path: Path) -> None:
    done = run("ifeddr-fair", "--quick", "--data", str(data_folder), "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    rows = re.findall(r"^ ((?:fedprox|feddr|ifeddr)\S*(?: \S+)*) {2,}.* (0\.\d{3}) +0\.\d\d ", done.stdout, re.M)
    assert len(rows) == 6
    assert all(0 <= float(accuracy) <= 1 for _, accuracy in rows)
    assert (tmp_path / "ifeddr-fair.svg").is_file()
    assert "is not monotone where a local vote is negative" in re.sub(r"\s+", " ", done.stdout)
