"""What a notebook shows of problems, solutions, fits and comparisons, and frames of their numbers."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from raising import raises_code

import fedpact as fp
from fedpact import data, notebook, tasks
from fedpact.report.progress import NotebookLine, ProgressLine, line, open_line
from fedpact.solvers import Progress

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def problem() -> fp.FederatedProblem:
    tables = dict(zip([HOSTILE, "b", "c"], data.neyman_pearson(3).values(), strict=True))
    return tasks.neyman_pearson(tables, bound=0.2)


def test_objects_show_themselves_and_run_nothing(problem: fp.FederatedProblem) -> None:
    answer = fp.solve(problem)
    rows = {f"clinic {i}": tasks.Rows.of(X, y) for i, (X, y) in enumerate(data.neyman_pearson(3).values())}
    columns = tuple(f"x{j}" for j in range(rows["clinic 0"].X.shape[1]))
    fitted = fp.fit(tasks.NeymanPearson(label="ill", columns=columns, bound=0.5), rows)
    rng = np.random.default_rng(0)
    vertical = fp.VerticalProblem(
        {"bank": rng.normal(size=(40, 2)), "shop": rng.normal(size=(40, 3))}, np.arange(40) % 2
    )
    shown = [one._repr_html_() for one in (problem, answer, fitted, vertical)]
    assert all(HOSTILE not in text for text in shown)
    assert "3 owners" in shown[0]
    assert "&lt;script&gt;" in shown[0]
    assert answer.reason in shown[1]
    assert "clinic 2" in shown[2]
    assert "specificity" in shown[2]
    assert "<td>shop</td><td>3</td>" in shown[3]


def test_long_tables_are_cut() -> None:
    shown = notebook.show("t", ["f"], ("a", "b"), [(i, float("nan")) for i in range(30)])
    assert shown.count("<tr>") == 1 + notebook.MOST
    assert "and 10 more" in shown
    assert "nan" not in shown


def test_the_history_is_a_frame(problem: fp.FederatedProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas", reason="pandas is absent")
    answer = fp.solve(problem)
    frame = answer.history.to_frame()
    assert frame["objective"].tolist() == [one.objective for one in answer.history.outer]
    assert frame["violation b"].tolist() == [one.violations["b"] for one in answer.history.outer]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with raises_code("FP-945"):
        answer.history.to_frame()


def test_methods_are_compared(problem: fp.FederatedProblem) -> None:
    """Each answer is that of the method alone; one that does not take the problem says why."""
    pytest.importorskip("matplotlib", reason="the extra 'plot' is not installed")
    found = fp.compare(problem, ["interior-point", "accelerated", "vertical-al"], tol=1e-4)
    assert list(found.solutions) == ["interior-point", "accelerated"]
    assert list(found.refused) == ["vertical-al"]
    alone = fp.solve(problem, "accelerated", tol=1e-4)
    assert found.solutions["accelerated"].objective == alone.objective
    assert found.to_frame().loc["accelerated", "exchanges"] == alone.rounds
    assert "interior-point" in str(found)
    assert found.refused["vertical-al"] in str(found)
    assert "<td>accelerated</td>" in found._repr_html_()
    assert [axes.get_title() for axes in found.plot().axes] == ["objective", "stationarity", "feasibility"]
    loose = fp.compare(problem, {"a": "accelerated", "b": fp.solvers.METHODS["accelerated"]()}, tol=1e-2)
    assert list(loose.solutions) == ["a", "b"]


def test_a_notebook_has_a_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, data: dict[str, str], **_: Any) -> None:
            shown.append(data["text/plain"])

    def display(data: dict[str, str], **_: Any) -> Handle:
        shown.append(data["text/plain"])
        return Handle()

    module = ModuleType("IPython.display")
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    assert isinstance(open_line((1e-3, 1e-3)), ProgressLine)
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    first = Progress("proximal-al", 1, 30, 57, 1_234_567, 4.13e-3, 2e-5, 0.25)
    last = replace(first, rounds=58)
    with open_line((1e-3, 1e-3)) as live:
        assert isinstance(live, NotebookLine)
        live(first)
        live(last)
    assert shown[0] == line(first, (1e-3, 1e-3))
    assert shown[-1] == line(last, (1e-3, 1e-3))
