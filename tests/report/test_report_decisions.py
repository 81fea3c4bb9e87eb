"""Constraints on decisions in a report: lower bounds, counts, promises, and models that give all rows one class."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from example_records import solved
from test_report_page import both, seen

from fedpact.report import sections, wording
from fedpact.report.page import markdown, page
from fedpact.report.prices import describe_prices
from fedpact.report.record import Measured, Record
from fedpact.statistics.evaluation import Evaluation, Outcome
from fedpact.tasks.base import Bounded

RECALL = Bounded("north", "recall of ill = yes", 0.95, 0.9, 0.2, least=True, rows=40)
RATE = Bounded("all owners", "false-positive rate of ill = yes", 0.3, 0.5, 0.0, rows=200)
GAP = Bounded("south", "gap in recall between sex = f and m", 0.03, 0.02, 0.1, allowed=0.0125)
PROMISE = replace(RECALL, value=0.875, promise="made", confidence=0.95)
HOW = "Promises are about rows not yet seen: half of them were held out."


def of(*bounded: Bounded, measured: tuple[Measured, ...] = (), status: str = "solved", promised: str = "") -> Record:
    return replace(solved(), bounded=bounded, measured=measured, status=status, promised=promised, convex=False)


def outcome(owner: str, verdict: str) -> Outcome:
    return Outcome(owner, "recall of ill = yes", 0.7, 0.9, 0.6, 0.8, 40, True, verdict=verdict)


def evaluation(*verdicts: str, time: str = "2026-11-19T12:00:00+00:00") -> Evaluation:
    bounds = tuple(outcome(f"clinic {k}", verdict) for k, verdict in enumerate(verdicts))
    return Evaluation(0.95, bounds, {}, {one.owner: {"rows": 90.0} for one in bounds}, {}, time)


def test_the_last_evaluation_stands_above_the_promises_and_turns_the_verdict() -> None:
    run = of(PROMISE)
    good = evaluation("borne out", "open")
    bad = evaluation("borne out", "contradicted", time="2026-11-20T12:00:00+00:00")
    assert wording.verdict(run, [good]).good
    assert wording.verdict(run, [bad, good]).good  # the last one counts, and the others are counted
    assert "Of 2 evaluations in all 1 contradicted a bound." in wording.verdict(run, [bad, good]).sentences[0]
    turned = wording.verdict(run, [good, bad])
    assert not turned.good
    assert turned.headline == "Contradicted by new rows: 1 of 2 constraints"
    assert "1 borne out, 1 contradicted, 0 open" in turned.sentences[0]
    for text in (
        page(sections.report(run, evaluations=[good, bad])),
        markdown(sections.report(run, evaluations=[bad])),
    ):
        assert "All promises" not in text
        assert "contradicted" in text
    assert wording.verdict(of(replace(RECALL, value=0.5)), [good]).headline == "Constraints not met: 1 of 1"


def test_a_lower_bound_is_written_as_one() -> None:
    found = seen(of(RECALL, RATE, GAP))
    caption = "Constraints by owner"
    assert [text for text, _ in found.column(caption, "Owner")] == ["north", "all owners", "south"]
    bounds = [text for text, _ in found.column(caption, "Asked for")]
    assert bounds[:2] == ["at least 0.9", "at most 0.5"]
    assert bounds[2].startswith("at most 0.02")
    assert "0.0125" in bounds[2]  # one row's worth
    used = [value for _, value in found.column(caption, "Bound used")]
    assert used == pytest.approx([0.5, 0.6, 1.5])  # half of the allowed misses
    assert [text for text, _ in found.column(caption, "Verdict")] == ["✓ met", "✓ met", "≈ within one row"]
    for text in both(of(RECALL, RATE)):
        assert "Recall of ill = yes, at least 0.9 asked for: 0.9500 at “north” (40 rows trained on" in text
        assert "rows that the model was trained on" in text


@pytest.mark.parametrize("one", [RECALL, RATE])
def test_values_of_training_rows_have_no_interval(one: Bounded) -> None:
    text, value = seen(of(one)).column("Constraints by owner", "Value")[0]
    assert value == one.value
    assert text.endswith(f"{one.rows} rows")


def test_counts_have_no_tolerance_but_one_row_of_a_gap() -> None:
    below = replace(RECALL, value=0.8995)
    assert wording.state(below, tol=1e-3) == "not met"
    assert wording.state(replace(below, rows=0), tol=1e-3) == "within tolerance"  # a loss
    assert wording.state(replace(GAP, value=0.033), tol=0.1) == "not met"
    assert wording.verdict(of(below)).headline == "Constraints not met: 1 of 1"
    missed = wording.verdict(of(below, status="stalled"))
    assert missed.headline == "Not solved: the model's decisions miss a bound"


def test_promises_say_for_which_rows_and_how() -> None:
    kept = of(PROMISE, RATE, promised=HOW)
    verdict = wording.verdict(kept)
    assert (verdict.good, verdict.headline) == (True, "All constraints are met")
    assert wording.verdict(of(PROMISE)).headline == "All promises for new rows are made"
    for text in both(kept):
        assert "Promises for rows not yet seen, with confidence 0.95: 1 of 1 made." in text
        assert HOW in text
        assert "exceeded" not in text  # its value here is below the bound, and decides nothing
    broken = of(replace(PROMISE, value=0.95, promise="not made"), status="unproven", promised=HOW)
    assert wording.verdict(broken).headline == "Not solved: the promises for new rows are not borne out"
    assert wording.count_met(broken) == 0
    assert wording.promise(PROMISE) == "for new rows, with confidence 0.95: made"


def test_a_promise_of_which_the_value_is_withheld_is_counted_once() -> None:
    silent = replace(PROMISE, value=float("nan"), withheld=True)
    assert wording.verdict(of(silent, replace(RECALL, value=0.5))).headline == "Constraints not met: 1 of 2"


def test_one_point_is_what_a_lower_bound_costs() -> None:
    record = of(RECALL, RATE)
    rows = seen(record).tables["What one unit more slack would buy"][1:]
    assert [(row[0][0], row[3][0], row[4][1]) for row in rows] == [("north", "0.9 → 0.89", pytest.approx(0.002))]
    assert any("0.89 instead of 0.9 would lower the objective" in told for told in describe_prices(record))


def measured(name: str, one_class: str = "") -> Measured:
    return Measured(name, {"rows": 5.0, "recall": 1.0, "specificity": 0.0}, one_class=one_class)


def test_a_model_that_gives_all_rows_one_class_is_never_green() -> None:
    everywhere = of(RECALL, measured=(measured("north", "ill = yes"), measured("south", "ill = yes")))
    verdict = wording.verdict(everywhere)
    assert verdict.good is False
    assert verdict.headline == wording.ONE_CLASS
    assert 'id="verdict" tabindex="-1" aria-labelledby="verdict-title" class="bad"' in page(sections.report(everywhere))
    for text in both(everywhere):
        assert "At every owner the model calls every row ill = yes" in text
    at_one = of(RECALL, measured=(measured("north", "ill = yes"), measured("south")))
    verdict = wording.verdict(at_one)
    assert (verdict.good, verdict.warned, verdict.mark) == (True, True, "!")
    assert 'class="warned"' in page(sections.report(at_one))
    for text in both(at_one):
        assert "At “north” the model calls every row ill = yes" in text
    assert wording.describe_one_class(of(RECALL, measured=(measured("north"),))) == []
    unsolved = wording.verdict(replace(everywhere, status="max_rounds"))
    assert any("every row ill = yes" in sentence for sentence in unsolved.sentences)


def test_what_is_new_is_kept_in_the_record_and_not_missed_in_old_ones(tmp_path: Path) -> None:
    record = of(PROMISE, RATE, GAP, measured=(measured("north", "ill = yes"),), promised=HOW)
    record.save(tmp_path)
    assert Record.load(tmp_path) == record
    stated = json.loads((tmp_path / "run.json").read_text())
    del stated["promised"]
    for one in stated["bounded"]:
        for name in ("confidence", "rows", "promise", "allowed", "least"):
            del one[name]
    del stated["measured"][0]["one_class"]
    (tmp_path / "run.json").write_text(json.dumps(stated))
    old = Record.load(tmp_path)
    assert old.promised == old.measured[0].one_class == ""
    assert {one.rows for one in old.bounded} == {0}
