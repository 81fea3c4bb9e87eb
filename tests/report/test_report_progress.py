from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from fedpact.report.progress import ProgressLine, line, megabytes
from fedpact.report.tables import table, terminal
from fedpact.solvers import Progress

SEEN = Progress("proximal-al", 1, 30, 57, 1_234_567, 4.13e-3, 2e-5, 0.25)


def test_the_line_says_where_and_how_far() -> None:
    assert line(SEEN, (1e-3, 1e-4)) == (
        "proximal-al  outer 2  inner 31  exchange 57  "
        "stationarity 4.1e-03 (1e-03)  feasibility 2.0e-05 (1e-04)  1.23 MB"
    )


def test_before_the_first_certificate_the_line_says_inf() -> None:
    text = line(replace(SEEN, stationarity=float("inf"), feasibility=float("inf")), (1e-3, 1e-3))
    assert "stationarity inf (1e-03)  feasibility inf (1e-03)" in text


@pytest.mark.parametrize(("count", "text"), [(0, "0.00 MB"), (999_999, "1.00 MB"), (12_345_678, "12.35 MB")])
def test_megabytes(count: int, text: str) -> None:
    assert megabytes(count) == text


def test_the_live_line_is_shown_and_wiped() -> None:
    seen = io.StringIO()
    with ProgressLine((1e-3, 1e-3), Console(file=seen, force_terminal=True, width=150)) as live:
        live(SEEN)
        live(replace(SEEN, rounds=58))
    shown = seen.getvalue()
    assert line(replace(SEEN, rounds=58), (1e-3, 1e-3)) in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert shown.rstrip().endswith("\x1b[2K")  # erase the line: nothing is left behind


def test_the_live_line_ends_with_an_error() -> None:
    seen = io.StringIO()
    live = ProgressLine((1e-3, 1e-3), Console(file=seen, force_terminal=True, width=150))

    def fail() -> None:
        with live:
            raise ValueError("from the solve")

    with pytest.raises(ValueError, match="from the solve"):
        fail()
    assert "\x1b[?25h" in seen.getvalue()  # the cursor is back


def test_a_table_has_text_left_and_numbers_right() -> None:
    made = table("owner", "loss")
    made.add_row("a", "0.5")
    made.add_row("hospital 10", "12.25")
    out = io.StringIO()
    Console(file=out, width=60).print(made)
    rows = [row.rstrip() for row in out.getvalue().splitlines() if row.strip()]
    assert rows[0] == " owner          loss"
    assert set(rows[1].strip()) == {"─"}
    assert rows[2:] == [" a               0.5", " hospital 10   12.25"]


def test_a_long_cell_is_not_wrapped() -> None:
    made = table("owner", "loss")
    made.add_row("a name with many words in it", "1")
    out = io.StringIO()
    Console(file=out, width=60).print(made)
    assert "a name with many words in it" in out.getvalue()


def test_in_a_pipe_the_table_is_wide(capsys: pytest.CaptureFixture[str]) -> None:
    console = terminal()
    assert console.width == 110
    console.print("x" * 110)
    assert capsys.readouterr().out == "x" * 110 + "\n"


NAMES = ["[/x]", "[bold]a", ":smile:", "[link=x]", "a [b] c"]


def test_names_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Owners and columns may be called what markup looks like."""
    for name in NAMES:
        made = table(f"owner {name}", "rows")
        made.add_row(name, "5")
        terminal().print(made)
        heading, _, row = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
        assert heading.split("  ")[0].strip() == f"owner {name}"
        assert row.split("  ")[0].strip() == name


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_the_live_line_is_no_markup(name: str) -> None:
    seen = io.StringIO()
    with ProgressLine((1e-3, 1e-3), Console(file=seen, force_terminal=True, width=200)) as live:
        live(replace(SEEN, choice=f"{name}: a function has no Hessian"))
    assert name in seen.getvalue()
