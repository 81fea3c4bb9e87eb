"""`fedpact replicate`: what it lists, prints and writes; the quick part of every replication."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import scipy
from click.testing import CliRunner, Result

from fedpact import data, postprocess
from fedpact.cli.main import cli, main
from fedpact.cli.replicate import REPLICATIONS
from fedpact.cli.replications import fairvfl, pages
from fedpact.cli.replications.fairvfl_runs import Case, post_processed
from fedpact.cli.replications.fairvfl_runs import Ran as FairRan
from fedpact.cli.replications.findings import Claim, Replication, Table, Task
from fedpact.cli.replications.ifeddr_logistic import DONE, PATIENCE, Ran, idle, until
from fedpact.cli.trace import Point, Trace, announced
from fedpact.report import figures
from fedpact.solve import solve

DOCS = Path(__file__).parents[2] / "docs"


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, ["replicate", *args])


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """A replication called 'toy' that only reports what it was asked."""
    asked: list[Task] = []

    def replicate(task: Task) -> Replication:
        asked.append(task)
        task.say("at work")
        lines = {"a": ([1.0, 2.0], [3.0, 0.5]), "b": ([1.0, 2.0], [0.0, 1.0])}
        return Replication(
            "A toy",
            [
                Table(
                    "what it holds", ("method", "setting", "rounds"), [["a", "x", "3"], ["b", "y", "12"]], ("setting",)
                )
            ],
            [
                Claim("Figure 1", "it is so", "it is", True),
                Claim("Figure 2", "it is not", "it is", False, "it is a toy's"),
            ],
            ["it is a toy"],
            {"toy-figure": figures.panels([figures.Panel("t", "x", "y", lines, log_x=True)])},
        )

    module = ModuleType("toy_replication")
    module.replicate = replicate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "toy_replication", module)
    monkeypatch.setitem(REPLICATIONS, "toy", ("toy_replication", "a toy"))
    command = cli.get_command(None, "replicate")  # type: ignore[arg-type]
    assert command is not None
    monkeypatch.setattr(command.params[0].type, "choices", list(REPLICATIONS))
    return asked


def test_the_list() -> None:
    done = run("--list")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(REPLICATIONS)
    assert all(text in line for line, (_, text) in zip(lines, REPLICATIONS.values(), strict=True))


def test_what_is_found_is_printed_and_drawn(toy: list[Task], tmp_path: Path) -> None:
    done = run("toy", "--data", "somewhere", "--out", str(tmp_path / "new"))
    assert done.exit_code == 0, done.output
    assert (toy[0].folder, toy[0].quick) == ("somewhere", False)
    assert done.stderr.splitlines()[0] == "at work"
    assert re.search(r"^ a +x +3 *$", done.stdout, re.M)
    assert re.search(r"^ b +y +12 *$", done.stdout, re.M)
    assert "[agrees] Figure 1\n  paper: it is so\n  ours:  it is\n" in done.stdout
    assert "[DIFFERS] Figure 2" in done.stdout
    assert "Where this is not what the paper did:\n- it is a toy\n" in done.stdout
    assert (tmp_path / "new" / "toy-figure.svg").read_text().count("<svg") == 1
    assert f"wrote {tmp_path / 'new' / 'toy-figure.svg'}" in done.stderr
    assert f"wrote {tmp_path / 'new' / 'toy.md'}" in done.stderr
    lines = (tmp_path / "new" / "toy.md").read_text().splitlines()
    assert lines[0] == "# A toy"
    assert lines[5] == f"fedpact replicate toy --data DIR --out {tmp_path / 'new'}"  # the folder of data is one's own
    for text in (f"NumPy {np.__version__}", f"SciPy {scipy.__version__}", "fedpact "):
        assert text in lines[2]
    for line in (
        "| b | y | 12 |",
        "what it holds",
        "![toy figure](toy-figure.svg)",
        "- **agrees**: Figure 1",
        "- **DIFFERS**: Figure 2",
        "  - why: it is a toy's",
        "- it is a toy",
    ):
        assert lines.count(line) == 1, line


def test_quick_decides_nothing_and_markdown_is_markdown(toy: list[Task], tmp_path: Path) -> None:
    done = run("toy", "--quick", "--markdown", "--out", str(tmp_path))
    assert toy[0].quick
    assert "| a | x | 3 |" in done.stdout
    assert done.stdout.count("[not decided]") == 2
    assert "on which no claim is decided" in done.stdout
    page = (tmp_path / "toy.md").read_text()
    assert page.count("**not decided**") == 2
    assert f"fedpact replicate toy --out {tmp_path} --quick --markdown\n" in page


def test_remarks_outlive_a_run(toy: list[Task], tmp_path: Path) -> None:
    page = tmp_path / "toy.md"
    page.write_text("# An older toy\n\n## Remarks\n\nIt was fun.\n")
    assert run("toy", "--out", str(tmp_path)).exit_code == 0
    text = page.read_text()
    assert text.startswith("# A toy\n")
    assert text.endswith("\n- it is a toy\n\n## Remarks\n\nIt was fun.\n")
    assert "older" not in text


def test_the_list_of_all_pages(toy: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedpact.cli.replicate.REPLICATIONS", {"toy": REPLICATIONS["toy"]})
    folder = tmp_path / "pages"
    assert run("toy", "--out", str(folder)).exit_code == 0
    done = run("--index", str(folder))
    assert done.exit_code == 0, done.output
    listed = (tmp_path / "pages.md").read_text()
    assert "| [toy](pages/toy.md) | A toy | 1 | 1 | 0 |\n" in listed
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


def test_without_matplotlib_nothing_is_run(toy: list[Task], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = run("toy")
    assert done.exit_code == 1
    assert "fedpact[plot]" in str(done.exception)
    assert toy == []


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


# ---------------------------------------------------------------------------------------------------- ifeddr-logistic


def trace(*measured: float) -> Trace:
    return Trace([Point(k, k + 1, (k,), (0,), value) for k, value in enumerate(measured)], None, 0.0, False)


def test_when_a_run_has_stalled() -> None:
    falling = [0.98**k for k in range(300)]
    flat = falling[:150] + 150 * [falling[150]]
    assert not idle(trace(*falling).points)
    assert idle(trace(*flat).points)
    assert not idle(trace(*([1.0] * PATIENCE)).points)
    assert Ran("a", "", trace(*flat)).stalled
    assert not Ran("a", "", trace(*(DONE / 2 for _ in range(300)))).stalled
    assert until(10, 999)(trace(*falling[:11]).points)
    assert not until(10, 999)(trace(*falling[:10]).points)
    assert until(999, 10)(trace(*falling[:11]).points)
    assert until(999, 999)(trace(1.0, DONE).points)
    assert Ran("a", "", trace(1.0, np.nan)).last == np.inf


def test_a_run_tells_where_it_is() -> None:
    said: list[str] = []
    points = trace(0.5, 0.25).points
    often, rarely = (announced(name, said.append, lambda p: len(p) > 1, every) for name, every in (("a", 0), ("b", 60)))
    assert not often(points[:1])
    assert often(points)
    assert rarely(points)
    assert said == ["a", "b", "a: round 0, 0.5", "a: round 1, 0.25"]


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
    written = ["ifeddr-logistic-ablation.svg", "ifeddr-logistic-stall.svg", "ifeddr-logistic.md", "ifeddr-logistic.svg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == written
    assert "f* = 0.18136960" in done.stdout


def test_the_quick_part_of_ifeddr_fair(data_folder: Path, tmp_path: Path) -> None:
    done = run("ifeddr-fair", "--quick", "--data", str(data_folder), "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    rows = re.findall(r"^ ((?:fedprox|feddr|ifeddr)\S*(?: \S+)*) {2,}.* (0\.\d{3}) +0\.\d\d ", done.stdout, re.M)
    assert len(rows) == 6
    assert all(0 <= float(accuracy) <= 1 for _, accuracy in rows)
    assert (tmp_path / "ifeddr-fair.svg").is_file()
    assert "is not monotone where a local vote is negative" in re.sub(r"\s+", " ", done.stdout)


# ------------------------------------------------------------------------------------------------------------ fairvfl


def descended(case: Case, rounds: int, eps: float | None) -> np.ndarray:
    """What FedBCD and Fair VFL with Q = 1 are: gradient descent, with ascent where there is a bound. Returns w."""
    X = np.column_stack([case.train.X, np.ones(len(case.train.y))])
    signs, positive = 2.0 * case.train.y - 1, case.train.y == 1
    row = np.zeros(len(signs))
    for group, sign in ((0, 1.0), (1, -1.0)):
        members = positive & (case.train.group == group)
        row[members] = sign / members.sum()
    shrunk = np.append(np.ones(X.shape[1] - 1), 0.0)
    w, prices = np.zeros(X.shape[1]), np.zeros(2)
    for _ in range(rounds):
        z = X @ w
        if eps is not None:
            gap = row @ np.log1p(np.exp(-signs * z))
            prices = np.maximum(prices + 0.1 * (np.array([gap, -gap]) - eps - 1e-3 * prices), 0.0)
        slopes = -signs / (1 + np.exp(signs * z))
        w = w - (X.T @ ((1 / len(signs) + (prices[0] - prices[1]) * row) * slopes) + 2 / len(signs) * shrunk * w) / 100
    return w


def test_the_quick_part_of_fairvfl(data_folder: Path, tmp_path: Path) -> None:
    done = run("fairvfl", "--quick", "--data", str(data_folder), "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    number = r"(\d+\.\d) ± \d+\.\d"
    found = {
        name.strip(): (float(accuracy), float(fairness))
        for name, accuracy, fairness in re.findall(
            rf"^ COMPAS +(\S.*?) {{2,}}{number} +(?:\d+\.\d)? +{number} ", done.stdout, re.M
        )
    }
    assert list(found) == ["FedBCD", "EO", "CEO", "Fair VFL", "optimum, no constraint", "optimum"]
    cases = [Case(*data.split(data.vertical_compas(data_folder), seed)) for seed in range(fairvfl.QUICK.seeds)]
    for method, eps in (("FedBCD", None), ("Fair VFL", 0.01)):
        accuracies, fairness = [], []
        for case in cases:
            w, test = descended(case, fairvfl.QUICK.rounds, eps), case.test
            z = test.X @ w[:-1] + w[-1]
            losses = np.log1p(np.exp(-z))[test.y == 1]
            members = test.group[test.y == 1]
            accuracies.append(100 * np.mean((z >= 0) == test.y))
            fairness.append(100 - 100 * abs(losses[members == 0].mean() - losses[members == 1].mean()))
        assert found[method] == pytest.approx((np.mean(accuracies), np.mean(fairness)), abs=0.051)
    optimum = re.search(r"^ COMPAS +0\.01 .* (0\.\d{4}) *$", done.stdout, re.M)
    assert optimum is not None
    pooled = solve(cases[0].problem(0.01).pooled(), "interior-point", tol=1e-8)
    assert float(optimum.group(1)) == pytest.approx(pooled.objective, abs=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fairvfl-eps.svg", "fairvfl-rounds.svg", "fairvfl.md"]


def scored(seed: int) -> Case:
    """A case whose scores are its only column, the same rows for training and for testing."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, 400)
    y = (rng.random(400) < 0.4 + 0.2 * group).astype(np.int64)
    z = 1.5 * (2 * y - 1) * (0.3 + group) + rng.normal(size=400)
    table = data.VerticalTable(z[:, None], y, group, ("score",), np.array([True]), 400, 1)
    return Case(table, table)


class Answer:
    """A solution that is looked at for its w or its history only."""

    def __init__(self, w: list[float], *curve: tuple[float, float]) -> None:
        self.w = np.array(w)
        self.history = self
        self.outer = [
            SimpleNamespace(rounds=k, objective=loss, violations={"gap": miss})
            for k, (loss, miss) in enumerate(curve, 1)
        ]


def test_what_post_processing_gives_is_an_expectation_over_its_coins() -> None:
    case = scored(0)
    found = post_processed(FairRan(Answer([1.0, 0.0]), case))  # type: ignore[arg-type]
    y, group, z = case.train.y, case.train.group, case.train.X[:, 0]
    assert found["EO"].fairness == pytest.approx(
        100
    )  # the true positive rates are equal on the rows it is derived from
    equal = postprocess.equalized_odds(y, z, group, constraint="true_positive_rate")
    assert found["EO"].accuracy == pytest.approx(100 * (1 - equal.loss))
    assert np.log1p(np.e) - np.log1p(1 / np.e) == pytest.approx(
        1
    )  # DEO of predictions taken for scores is that of rates
    chances = 1 / (1 + np.exp(-z))
    derived = postprocess.calibrated_equalized_odds(y, chances, group, on_infeasible="withhold")
    assert derived.rate > 0
    drawn = np.array([derived.withhold(chances, group, seed) for seed in range(2000)])
    assert found["CEO"].accuracy == pytest.approx(100 * np.mean((drawn >= 0.5) == y), abs=0.2)
    losses = -np.log(drawn).mean(axis=0)
    gap = abs(losses[(y == 1) & (group == 0)].mean() - losses[(y == 1) & (group == 1)].mean())
    assert found["CEO"].fairness == pytest.approx(100 * (1 - gap), abs=0.5)


def test_when_a_run_is_near_the_optimum() -> None:
    curve = ((2.0, 0.0), (1.0, 0.5), (1.0, 0.0), (1.2, 0.0), (1.005, 0.0005), (1.0005, 0.0))
    ran = FairRan(Answer([], *curve), scored(0))  # type: ignore[arg-type]
    assert ran.within(1.0, 0.01) == 5  # 3 is near, and left again
    assert ran.within(1.0, 0.001) == 6
    assert ran.within(1.0, 1e-4) is None
    assert ran.first(1.2) == 2
    assert ran.first(0.9) is None
