"""Sentences that claimed more than was shown, and must not return: in README, docs, and a page that was generated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fedpact.report import sections, wording
from fedpact.report.page import markdown, page
from fedpact.report.record import Measured, Record
from fedpact.tasks import Classification, Requirement
from fedpact.tasks.base import Bounded

ROOT = Path(__file__).parents[1]
#: What must not be said, and why not.
FORBIDDEN = {
    r"promises?\b[^.|]{0,60}\b(are|is|be|was|were) kept\b": "a promise is made; new rows show whether it holds",
    r"\bpromises? kept\b": "likewise",
    r"\bkeeps? (its|the|a|every|all) promises?\b": "likewise",
    r"recall (low|high)\b": "rates of training rows have no interval",
    r"\b95 % (confidence )?intervals?\b[^.|]{0,80}\b(training rows|rows trained on)": "likewise",
    r"\b(training rows|rows trained on)[^.|]{0,40}hence the confidence interval": "likewise",
    r"owners?\b[^.|]{0,30}\btells? (the|its) rates?\b": "rates are reported",
}


def found_in(text: str) -> Iterator[str]:
    """What is forbidden in it, wherever lines end."""
    flat = re.sub(r"\s+", " ", text)
    for pattern, why in FORBIDDEN.items():
        for match in re.finditer(pattern, flat, re.IGNORECASE):
            yield f"{match[0]!r}: {why}"


def of_promises(verdict: str) -> Record:
    from example_records import solved  # of tests/report

    bound = Bounded("north", "recall of ill = yes", 0.95, 0.9, 0.2, least=True, rows=40)
    promised = replace(bound, promise=verdict, confidence=0.95)
    task = Classification(
        label="ill", columns=("age",), constraints=(Requirement(kind="recall", at_least=0.9),), confidence=0.95
    )
    measured = (Measured("north", {"rows": 80.0, "recall of ill = yes": 0.95, "specificity of ill = yes": 0.5}),)
    return replace(
        solved(), bounded=(promised,), measured=measured, promised=replace(task, proven=True).promise_in_words()
    )


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda p: p.name)
def test_no_page_claims_it(path: Path) -> None:
    assert list(found_in(path.read_text())) == []


def test_no_command_claims_it() -> None:
    for path in sorted((ROOT / "src" / "fedpact" / "cli").glob("*.py")):
        assert list(found_in(path.read_text())) == [], path.name


def test_no_report_claims_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "report"))
    for verdict in ("made", "not made"):
        record = of_promises(verdict)
        made = sections.report(record)
        for text in (page(made), markdown(made)):
            assert list(found_in(text)) == []
            assert "independently of each other" in text
            assert not re.search(r"\d\.\d+ to \d\.\d+, \d+ rows", text)  # an interval beside rows trained on
    assert wording.verdict(of_promises("made")).headline == "All promises for new rows are made"


def test_readme_says_for_which_rows_constraints_hold() -> None:
    first = re.sub(r"\s+", " ", (ROOT / "README.md").read_text().split("\n\n")[1])
    assert "on their training rows, or with a confidence on new ones" in first


def test_independence_is_stated_where_promises_are_explained() -> None:
    for page_ in ("how-to/recall-promise.md", "explanation/decisions.md"):
        assert "independently" in (ROOT / "docs" / page_).read_text()


@pytest.mark.parametrize(
    "text",
    [
        "All promises for new rows are kept",
        "3 of 3 promises kept",
        "the model keeps its promise",
        "recall low",
        "a 95 % confidence interval of the rows trained on",
        "Both are measured on the training rows, hence the confidence interval.",
    ],
)
def test_each_is_recognised(text: str) -> None:
    assert list(found_in(text))
