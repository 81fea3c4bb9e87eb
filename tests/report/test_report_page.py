"""What the page and the Markdown say: the verdict of every ending, the record's numbers, and names as they are."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import get_args

import pytest
from example_records import HOSTILE, ended, hostile, infeasible, solved, with_server

from fedpact.report import numbers, sections, wording
from fedpact.report.content import NONE
from fedpact.report.course import charts
from fedpact.report.measures import tabulate
from fedpact.report.page import markdown, page, plain
from fedpact.report.prices import describe_prices
from fedpact.report.record import Record, Step
from fedpact.solvers.solution import Status
from fedpact.statistics import Estimate

VOID = {"meta", "path", "circle", "rect"}


class Seen(HTMLParser):
    """A page as a browser would take it: elements, attributes, texts, tables by caption, and whether tags match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.tables: dict[str, list[list[tuple[str, float | None]]]] = {}
        self._open: list[str] = []
        self._caption = ""
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "caption":
            self._caption = ""
        elif tag == "tr":
            self.tables[self._caption].append([])
        elif tag in ("td", "th"):
            self.tables[self._caption][-1].append(("", None))
        elif tag == "data":
            cells = self.tables[self._caption][-1]
            cells[-1] = (cells[-1][0], float(dict(attrs)["value"] or "nan"))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "caption":
            self.tables[self._caption] = []

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if "caption" in self._open:
            self._caption += data
        elif "td" in self._open or "th" in self._open:
            cells = self.tables[self._caption][-1]
            cells[-1] = (cells[-1][0] + data, cells[-1][1])

    def text(self) -> str:
        return " ".join(self.texts)

    def column(self, caption: str, head: str) -> list[tuple[str, float | None]]:
        first, *rows = self.tables[caption]
        number = [text for text, _ in first].index(head)
        return [row[number] for row in rows]


def seen(record: Record) -> Seen:
    return Seen(page(sections.report(record)))


def both(record: Record) -> tuple[str, str]:
    """The page's text and the Markdown."""
    return seen(record).text(), markdown(sections.report(record))


# -------------------------------------------------------------------------------------------------------- the verdict


@pytest.mark.parametrize(
    ("status", "headline", "next_step"),
    [
        ("max_rounds", "Not solved: the run ended before the tolerances were met", "Allow more exchanges"),
        ("interrupted", "Not solved: the run was interrupted", "--resume"),
        ("stalled", "Not solved: the method stopped making progress", "scale the columns"),
        ("infeasible", "Not solved: the constraints cannot all be met", "Loosen the bounds"),
        ("unbounded", "Not solved: the objective is unbounded below", "Add a regularizer"),
        ("client_lost", "Not solved: an owner stopped answering", "Bring that owner back"),
    ],
)
def test_a_run_that_is_not_solved_says_so_first(status: str, headline: str, next_step: str) -> None:
    record = ended(status, "because of 3 things")
    for text in both(record):
        assert headline in text
        assert "because of 3 things." in text
        assert re.search(rf"What to do next\.(\*\*)?\s+.*{next_step}", text, re.DOTALL)
        assert "carries no guarantee" in text
        assert "Constraints met: 3 of 5." in text
        assert "nothing is proven" in text
        assert "is optimal" not in text
        assert "The most expensive bound" not in text
    assert text.index(headline) < text.index("## What was asked, owner by owner")
    assert wording.verdict(record).good is False


def test_every_status_of_a_solve_has_words() -> None:
    assert {"solved", *wording.ENDINGS} == set(get_args(Status))


def test_a_solved_run_names_the_tightest_constraint() -> None:
    record = solved()
    tight = max(record.bounded, key=lambda one: one.value)
    assert 0 < tight.value - tight.bound < record.tol[1]  # interior-point ends a little outside
    for text in both(record):
        assert "All constraints are met, within the tolerance" in text
        assert f"Mean loss on class 1, at most 0.2 asked for: 0.2000 at “{tight.owner}”" in text
        assert "Constraints met: 5 of 5." in text
        assert f"missed by {numbers.number(tight.value - tight.bound)}, within the tolerance of" in text
        assert "is optimal" in text
    inside = tuple(replace(one, value=min(one.value, one.bound - 0.01)) for one in record.bounded)
    assert wording.verdict(replace(record, bounded=inside)).headline == "All constraints are met"
    assert "(missed by" not in markdown(sections.report(replace(record, bounded=inside)))


def test_solved_is_not_enough() -> None:
    """Whatever the status says, a bound that is missed or a certificate that is missed is not called met."""
    record = solved()
    missed = replace(record, bounded=(replace(record.bounded[0], value=0.3), *record.bounded[1:]))
    assert wording.verdict(missed).headline == "Constraints not met: 1 of 5"
    unknown = replace(record, bounded=(replace(record.bounded[0], value=math.nan), *record.bounded[1:]))
    assert wording.verdict(unknown).headline == "Constraints not met: 1 of 5"
    assert "Not known: mean loss on class 1 at “hospital 1”" in markdown(sections.report(unknown))
    for far in (1.0, math.nan):
        found = wording.verdict(replace(record, stationarity=far))
        assert (found.good, found.headline) == (False, "Called solved, but the certificate misses the tolerances")


def test_infeasible_owners_are_named() -> None:
    for text in both(infeasible()):
        assert "the constraints of low, high exclude each other" in text
        assert "Constraints met: 0 of 2." in text
    apart = replace(infeasible(), convex=False)
    assert wording.verdict(apart).headline == "Not solved: no model that meets all constraints was found"


def test_what_is_not_convex_is_not_called_optimal() -> None:
    for text in both(with_server()):
        assert "stationary, not proven optimal" in text
        assert "is optimal" not in text
        assert "All constraints are met" in text
        assert "Constraints met: 6 of 6." in text
    assert ("server", None) in seen(with_server()).column("Constraints by owner", "Owner")


# -------------------------------------------------------------------------------------------------------- the numbers


def test_the_numbers_are_those_of_the_record() -> None:
    record = solved(secure=True)
    found = seen(record)
    of = found.column
    bounded = record.bounded
    assert [t for t, _ in of("Constraints by owner", "Owner")] == [one.owner for one in bounded]
    assert of("Constraints by owner", "Asked for") == [(f"at most {one.bound:g}", one.bound) for one in bounded]
    assert [v for _, v in of("Constraints by owner", "Value")] == [one.value for one in bounded]
    assert [v for _, v in of("Constraints by owner", "Slack")] == [one.bound - one.value for one in bounded]
    assert [v for _, v in of("The certificate", "Reached")] == [record.stationarity, record.feasibility]
    assert [v for _, v in of("The certificate", "Asked for, at most")] == list(record.tol)
    assert [v for _, v in of("Measured at the owners", "recall")] == [m.numbers["recall"] for m in record.measured]
    assert of("Rows by owner", "rows")[0] == ("200", 200.0)
    caption = "The numbers behind the charts"
    assert [v for _, v in of(caption, "Objective")] == [step.objective for step in record.history]
    assert [v for _, v in of(caption, "Most violation")] == [max(s.violations.values()) for s in record.history]
    assert {text for text, _ in of(caption, "Least violation")} == {"–"}  # whose they are was hidden
    assert [v for _, v in of("Messages and bytes by owner", "Sent")] == [one.bytes_up for one in record.sent]
    masked = [field for field in record.sent[0].fields if field.endswith("(masked)")]
    assert of("Messages and bytes by owner", "of them masked")[0][1] == len(masked) > 10
    assert dict(found.tables["Versions"][1:])[("fedpact", None)] == ("0.1.0", None)
    assert ("solver.tol", None) in of("Settings, with defaults filled in", "Setting")
    assert record.notes[0] in found.text()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.2, "0.2000"),
        (3.05411, "3.0541"),
        (-0.0216, "−0.0216"),
        (1234.56, "1,234.6"),
        (6.7e-6, "6.7×10⁻⁶"),
        (-2e12, "−2.0×10¹²"),
        (0.0, "0"),
        (12, "12"),
        (math.nan, "not known"),
        (-math.inf, "−∞"),
    ],
)
def test_numbers_as_they_are_written(value: float, text: str) -> None:
    assert numbers.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.2, "0.2"), (1e-4, "0.0001"), (1e-6, "10⁻⁶"), (2.5e-9, "2.5×10⁻⁹"), (-1.0, "−1"), (0.4045021, "0.4045")],
)
def test_chosen_numbers_are_written_as_they_were_chosen(value: float, text: str) -> None:
    assert numbers.given(value) == text


def test_small_things_in_words() -> None:
    assert [numbers.size(count) for count in (12, 19840, 2.5e6, 3e9)] == ["12 bytes", "19.8 kB", "2.5 MB", "3 GB"]
    assert [numbers.duration(s) for s in (1.74, 192, 7300, math.nan)] == [
        "1.7 s",
        "3 min 12 s",
        "2 h 1 min",
        "not known",
    ]
    assert numbers.percent(0.056) == "5.6 %"


def test_a_price_is_what_a_looser_bound_buys() -> None:
    """The sentence's promise, kept by solving again: all five bounds loosened by 0.001."""
    record = solved(tol=1e-6)
    promised = sum(one.price * 0.001 for one in record.bounded)
    assert record.objective - solved(bound=0.201, tol=1e-6).objective == pytest.approx(promised, rel=0.02)
    dearest = max(record.bounded, key=lambda one: one.price)
    rows = seen(record).tables["What one unit more slack would buy"][1:]
    assert rows[0][0] == (dearest.owner, None)
    assert rows[0][2][1] == dearest.price
    assert rows[0][3][0] == "0.2 → 0.22"
    assert rows[0][4][1] == pytest.approx(0.02 * dearest.price)
    assert len(rows) == 2
    for text in both(record):
        assert f"with a price of {numbers.number(dearest.price)}: 0.22 instead of 0.2 would lower" in text
        assert "Bounds of price zero: 3." in text


def test_prices_that_have_a_sign_or_are_not_known() -> None:
    first, second, *others = solved().bounded
    unknown = replace(others[0], price=math.nan)
    equality = replace(first, bound=0.0, value=0.0, price=-3.0)
    rows = seen(replace(solved(), bounded=(equality, unknown))).tables["What one unit more slack would buy"][1:]
    assert [(row[0][0], row[2][1], row[3][0]) for row in rows] == [(first.owner, 3.0, "0 → 0.01")]
    told = describe_prices(replace(solved(), bounded=(equality, unknown)))
    assert told[-1].startswith("Bounds without a price: 1.")
    assert not any("price zero" in sentence for sentence in told)
    for text in both(replace(solved(), bounded=(equality, unknown))):
        assert "optimal for the bounds that the method worked with" in text
        assert "Outside this proof (bounds without a price): 1." in text
    assert all("Outside this proof" not in text for text in both(solved()))
    assert describe_prices(replace(solved(), bounded=(replace(second, price=0.0),)))[-1].startswith(
        "Bounds of price zero: 1."
    )


# ----------------------------------------------------------------------------------------------------- what may differ


def test_names_are_shown_and_never_run() -> None:
    found = seen(hostile())
    tags = {tag for tag, _ in found.tags}
    assert tags & {"script", "img", "iframe", "link", "object", "form"} == set()
    assert [t for t, _ in found.column("Constraints by owner", "Owner")] == list(HOSTILE)
    assert set(HOSTILE) <= set(found.texts)  # the notes
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
    text = markdown(sections.report(hostile()))
    assert "<" not in text
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    assert all(plain(name) in text for name in HOSTILE)


def test_the_page_stands_alone() -> None:
    text = page(sections.report(solved(secure=True)))
    found = Seen(text)
    assert re.findall(r"https?:|//|url\(|@import", text) == []
    links = [v for _, attributes in found.tags for k, v in attributes.items() if k in ("href", "src", "srcset", "data")]
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(links) > 5
    assert all(link and link.startswith("#") and link[1:] in ids for link in links)
    assert len(ids) == len(set(ids))
    referred = [i for _, a in found.tags for k, v in a.items() if k == "aria-labelledby" for i in (v or "").split()]
    assert set(referred) <= set(ids)
    assert {"header", "main", "nav"} <= {tag for tag, _ in found.tags}
    assert all(a.get("scope") in ("row", "col") for tag, a in found.tags if tag == "th")


def test_a_hundred_owners() -> None:
    record = solved(100)
    text = page(sections.report(record))
    assert len(text) < 300_000
    found = Seen(text)
    slacks = [v for _, v in found.column("Constraints by owner, the tightest first", "Slack")]
    assert slacks == sorted(one.slack for one in record.bounded)
    assert len(slacks) == 100
    assert "Constraints met: 100 of 100." in found.text()
    assert {t for t, _ in found.column("Fields that left an owner", "Sent by")} == {"every owner"}


def test_what_belongs_together_stands_together() -> None:
    record = solved()
    numbers = {"rows": 5.0, "recall": 0.5, "accuracy": 0.25, "recall before": 1.0}
    rows = (replace(record.measured[0], numbers=numbers), replace(record.measured[1], numbers={"rows": 7.0}))
    tables = seen(replace(record, measured=rows)).tables
    told = tables["Measured at the owners"]
    assert [text for text, _ in told[0]] == ["Owner", "recall", "recall before", "accuracy"]
    assert [value for _, value in told[1]] == [None, 0.5, 1.0, 0.25]
    assert [text for text, _ in told[2]] == ["hospital 2", "–", "–", "–"]
    assert [[text for text, _ in row] for row in tables["Rows by owner"]] == [
        ["Owner", "rows"],
        ["hospital 1", "5"],
        ["hospital 2", "7"],
    ]


def test_exchanges_that_are_not_drawn_are_told() -> None:
    record = solved()
    assert record.rounds > record.history[-1].rounds
    assert all("exchanges of the whole run, with those before and after it: 7." in text for text in both(record))
    assert "whole run" not in markdown(sections.report(replace(record, rounds=record.history[-1].rounds)))


def test_fields_that_only_some_owners_sent() -> None:
    record = solved()
    first = replace(record.sent[0], fields=(*record.sent[0].fields, "Extra.one", "Extra.two (masked)"))
    rows = seen(replace(record, sent=(first, *record.sent[1:]))).tables["Fields that left an owner"]
    extra = [[text for text, _ in row] for row in rows if row[0][0] == "Extra"]
    assert extra == [
        ["Extra", "one", "as it is", "“hospital 1”"],
        ["Extra", "two", "masked: only the sum was seen", "“hospital 1”"],
    ]


def test_little_is_enough_for_a_report() -> None:
    """No history, no bounds, nothing measured or sent, and an objective that is not a number."""
    bare = replace(
        solved(), history=(), bounded=(), measured=(), sent=(), settings={}, versions={}, notes=(), objective=math.nan
    )
    for text in both(bare):
        assert "Solved, without constraints" in text
        assert "nothing to draw" in text
        assert "not known" in text
    assert "svg" not in {tag for tag, _ in seen(bare).tags}


def test_a_course_with_holes() -> None:
    lost = Step(3, 500, math.nan, math.inf, math.nan, {})
    record = replace(solved(), history=(solved().history[0], lost, solved().history[2]), objective=math.inf)
    found = seen(record)
    caption = "The numbers behind the charts"
    assert [t for t, _ in found.column(caption, "Objective")][1] == "not known"
    assert [t for t, _ in found.column(caption, "Stationarity")][1] == "∞"
    only = replace(solved(), history=(lost,))
    assert [chart.key for chart in charts(only)] == ["certificate", "bytes"]  # a tolerance, a count


def test_an_interval_without_an_upper_end_says_so() -> None:
    """... and no number that is not known is taken for one that has no end."""
    table = tabulate("Prices", "Constraint", [Estimate("loss", 5.0, 4.0, 1.25, math.nan, 2.0, math.inf)])
    assert [one.text for one in table.rows[0]][-3:] == [NONE, "2.0000", "∞"]
