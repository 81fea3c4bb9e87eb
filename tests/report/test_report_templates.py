"""Templates and texts of an organisation's own; the model, the curves and two runs on a page."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from example_records import COEFFICIENTS, hostile, solved, whole
from raising import raises_code
from test_report_command import call
from test_report_page import Seen

from fedpact.data.encoding import Encoding
from fedpact.report import sections
from fedpact.report.coefficients import Coefficient, read_coefficients
from fedpact.report.page import markdown, page, write_page
from fedpact.report.quality import area, roc, tenths
from fedpact.report.record import Record
from fedpact.statistics import Estimate, ScoreCounts
from fedpact.tasks import Model


def save(folder: Path, record: Record) -> Path:
    folder.mkdir()
    record.save(folder)
    model = Model(
        Encoding(("age", "dose"), {}, "error"), np.array([[0.5, -2.0]]), np.array([1.0]), np.zeros(0), ("n", "y")
    )
    model.save(folder)
    return folder


# ------------------------------------------------------------------------------------------------- templates and texts


def test_an_organisation_brings_its_own_page_and_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = save(tmp_path / "run", whole())
    own = tmp_path / "own"
    own.mkdir()
    (own / "page.html").write_text(
        '{% extends "fedpact/page.html" %}'
        "{% block footer %}<footer>Klinikum & Co, {{ report.title }}</footer>{% endblock %}"
    )
    (own / "words.toml").write_text(
        '"en" = "de"\n"All constraints are met" = "Alle Bedingungen sind erfüllt"\n'
        '"Constraints met: {met:,} of {total:,}." = "Erfüllt: {met:,} von {total:,}."\n'
        '"Owner" = "Eigner"\n"The model" = "Das Modell"\n"at least {bound}" = "mindestens {bound}"\n'
        '"met" = "erfüllt"\n',
        encoding="utf-8",
    )
    assert call(monkeypatch, run, "--templates", own) == 0
    assert not (run / "report.html").exists()  # a run that is signed gets no page but fedpact's own
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert '<html lang="de">' in text
    assert f"<footer>Klinikum & Co, {whole().title}</footer>" in text
    found = Seen(text)
    assert "Alle Bedingungen sind erfüllt" in found.text()
    assert "Erfüllt: 5 von 5." in found.text()
    assert [t for t, _ in found.column("Constraints by owner", "Verdict")] == ["✓ erfüllt"] * 5
    assert [t for t, _ in found.column("Constraints by owner", "Asked for")] == ["mindestens 0.9"] * 5
    assert ("Eigner", None) in found.tables["Constraints by owner"][0]
    assert "All constraints are met" in page(sections.report(whole()))  # the language ends with the page


def test_markdown_has_a_template_too(tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("{{ report.verdict.headline|plain }}!\n")
    made = write_page(lambda: sections.report(solved()), tmp_path, "report.md")
    assert made == "All constraints are met, within the tolerance!\n"


@pytest.mark.parametrize(
    ("file", "text", "code"),
    [
        ("words.toml", "= 1", "FP-940"),
        ("page.html", "{% if %}", "FP-943"),
        ("page.html", "{{ report.nothing }}", "FP-943"),
        (None, "", "FP-942"),
    ],
)
def test_what_cannot_be_used_is_said(file: str | None, text: str, code: str, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    if file is not None:
        folder.mkdir()
        (folder / file).write_text(text)
    with raises_code(code):
        write_page(lambda: sections.report(solved()), folder)


# ------------------------------------------------------------------------------------------------------------ the model


def test_coefficients_are_in_the_units_of_the_columns(tmp_path: Path) -> None:
    run = save(tmp_path / "run", solved())
    record = solved()
    assert read_coefficients(run, record) == (
        Coefficient("age", 0.5),
        Coefficient("dose", -2.0),
        Coefficient("intercept", 1.0),
    )
    (run / "task.json").write_text(json.dumps({"task": {"scaling": {"scale": [10.0, 0.1]}}}))
    assert [one.scale for one in read_coefficients(run, record)] == [10.0, 0.1, 1.0]
    inferred = replace(record, coefficients=(Estimate("dose", -2.0, 0.5, -4.0, 0.0001, -3.0, -1.0),), inference="hc0")
    (only,) = read_coefficients(run, inferred)
    assert (only.name, only.se, only.low, only.high, only.scale) == ("dose", 0.5, -3.0, -1.0, 0.1)
    assert read_coefficients(tmp_path, record) == ()


def test_the_model_is_shown_with_what_is_known_of_it() -> None:
    found = Seen(page(sections.report(solved(), coefficients=COEFFICIENTS)))
    assert [v for _, v in found.column("Coefficients", "Estimate")] == [one.estimate for one in COEFFICIENTS]
    assert [v for _, v in found.column("Coefficients", "95 % high")][:3] == [one.high for one in COEFFICIENTS[:3]]
    assert [t for t, _ in found.column("Coefficients", "p")][-1] == "–"
    bare = tuple(Coefficient(one.name, one.estimate) for one in COEFFICIENTS)
    assert [t for t, _ in Seen(page(sections.report(solved(), coefficients=bare))).tables["Coefficients"][0]] == [
        "Column",
        "Estimate",
    ]
    text = markdown(sections.report(solved(), coefficients=COEFFICIENTS))
    assert "The largest is that of a column with a name that is much too long for a chart: −0.7000." in text


def test_odds_ratios_are_shown_where_scores_are_log_odds(tmp_path: Path) -> None:
    run = save(tmp_path / "run", solved())
    inferred = replace(
        solved(), coefficients=(Estimate("dose", -2.0, 0.5, -4.0, 0.0001, -3.0, -1.0),), inference="sandwich"
    )
    table = "Ratios for one unit more of the column"
    found = Seen(page(sections.report(inferred, coefficients=read_coefficients(run, inferred))))
    assert [v for _, v in found.column(table, "Odds ratio")] == pytest.approx([math.exp(-2.0)])
    assert [v for _, v in found.column(table, "95 % low")] == pytest.approx([math.exp(-3.0)])
    # Where errors are minimised scores are no log-odds, and the errors come from a bootstrap.
    drawn = replace(inferred, inference="bootstrap")
    assert table not in Seen(page(sections.report(drawn, coefficients=read_coefficients(run, drawn)))).tables


def test_everything_that_a_page_can_show_has_a_name_of_its_own() -> None:
    found = Seen(page(sections.report(whole(), coefficients=COEFFICIENTS)))
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    order = ["verdict", "constraints", "model", "measured", "trade-off", "quality", "prices", "data", "certificate"]
    order += ["evidence", "course", "left", "repeat"]
    assert [one for one in ids if one in order] == order


# --------------------------------------------------------------------------------------------- curves and the trade-off


def test_the_area_is_how_often_a_positive_scores_higher() -> None:
    """Mann-Whitney: over all pairs, ties by half."""
    curves = ScoreCounts((0.0, 1.0), (3.0, 1.0, 1.0), (0.0, 2.0, 2.0), (0.25, 0.62, 0.82))
    pairs = [(n, p) for n in (0, 0, 0, 1, 2) for p in (1, 1, 2, 2)]
    wins = sum(1.0 if p > n else 0.5 * (p == n) for n, p in pairs)
    assert area(*roc(curves)) == pytest.approx(wins / len(pairs))
    assert tenths(replace(curves, negative=(30.0, 10.0, 1.0))) == [(0.25, 0, 30), (0.62, 2, 12)]


def test_scores_that_are_no_probabilities_have_no_calibration() -> None:
    record = whole()
    assert record.curves is not None
    text = markdown(sections.report(replace(record, curves=replace(record.curves, probabilities=()))))
    assert "there is no calibration to draw" in text
    assert "Calibration, with" not in text


def test_records_keep_curves_and_trade_off(tmp_path: Path) -> None:
    whole().save(tmp_path)
    assert Record.load(tmp_path) == whole()
    found = Seen(page(sections.report(whole())))
    assert [t for t, _ in found.column("Trade-off", "Certified")] == ["yes", "yes", "no"]
    assert [v for _, v in found.column("Trade-off", "recall")] == [0.95, 0.9, 0.8]


# ---------------------------------------------------------------------------------------------------------- two runs


def test_two_runs_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = save(tmp_path / "a", whole())
    looser = tuple(replace(one, value=one.value - 0.05) for one in whole().bounded)
    second = save(tmp_path / "b", replace(whole(), bounded=looser, settings={**whole().settings, "bound": 0.3}))
    assert call(monkeypatch, first, second) == 0
    found = Seen((tmp_path / "a-b.html").read_text(encoding="utf-8"))
    assert "One of the two runs does not meet what was asked of it" in found.text()
    caption = "Constraints by owner"
    assert [v for _, v in found.column(caption, "Difference")] == pytest.approx([-0.05] * 5)
    assert {t[:5] for t, _ in found.column(caption, "Verdict: a")} == {"✓ met"}
    assert "✗ not met" in {t[:9] for t, _ in found.column(caption, "Verdict: b")}
    assert [[t for t, _ in row] for row in found.tables["Settings that differ"]] == [
        ["Setting", "a", "b"],
        ["bound", "0.2", "0.3"],
    ]
    assert [v for _, v in found.column("Coefficients", "Difference")] == [0.0, 0.0, 0.0]
    assert call(monkeypatch, first, second, first) == 2


def test_hostile_names_in_a_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = save(tmp_path / "a", hostile()), save(tmp_path / "b", replace(hostile(), objective=math.nan))
    assert call(monkeypatch, first, second, "--out", tmp_path / "both.html") == 0
    found = Seen((tmp_path / "both.html").read_text(encoding="utf-8"))
    assert {tag for tag, _ in found.tags} & {"script", "img", "iframe"} == set()
