"""Charts as SVG: axes that hold their values, gaps where nothing is known, few points however long the run."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from fedpact.report.charts import POINTS, Chart, legend, linear, logarithmic, spans_decades, svg


def chart(**lines: list[float]) -> Chart:
    drawn = {label: (list(range(len(y))), y) for label, y in lines.items()}
    return Chart(key="one", title="A <title>", about="a & b", x="exchanges", y="unit", lines=drawn, log_y=False)


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.69, 1.1], ["0.6", "0.7", "0.8", "0.9", "1.0", "1.1"]),
        ([0, 759], ["0", "200", "400", "600", "800"]),
        ([-3, 4], ["−4", "−2", "0", "2", "4"]),
        ([0.98, 1.1], ["0.975", "1.000", "1.025", "1.050", "1.075", "1.100"]),
        ([0, 3.1e-6], ["0", "1e−6", "2e−6", "3e−6", "4e−6"]),
        ([0, 2.5e6], ["0", "500,000", "1,000,000", "1,500,000", "2,000,000", "2,500,000"]),
    ],
)
def test_ticks_are_round_numbers(values: list[float], texts: list[str]) -> None:
    axis = linear(values, (0, 100))
    assert [text for _, text in axis.ticks] == texts
    assert axis.low <= min(values) < max(values) <= axis.high
    assert [axis.at(axis.low), axis.at(axis.high)] == [0, 100]


@pytest.mark.parametrize("value", [0.0, 5.0, -2e-7, 1e12, 3e-12])
def test_one_value_still_has_an_axis(value: float) -> None:
    for values in ([value], [value, value * (1 + 1e-9)]):
        axis = linear(values, (0, 100))
        assert axis.low < value < axis.high
        assert 0 < axis.at(value) < 100
        texts = [text for _, text in axis.ticks]
        assert len(set(texts)) == len(texts) > 3
        assert max(map(len, texts)) < 10  # else they run into the label


def test_exchanges_are_whole() -> None:
    assert [text for _, text in linear([0, 1], (0, 100), whole=True).ticks] == ["0", "1"]
    assert [text for _, text in linear([0, 12], (0, 100), whole=True).ticks] == ["0", "3", "6", "9", "12"]


def test_decades() -> None:
    axis = logarithmic([0.4, 3e-5], (0, 100))
    assert [text for _, text in axis.ticks] == ["10⁻⁵", "10⁻⁴", "10⁻³", "10⁻²", "10⁻¹", "1"]
    assert axis.at(1e-5) == 0
    assert axis.at(1e-2) == pytest.approx(60)
    zero = logarithmic([0.4, 3e-5, 0.0], (0, 100))
    assert [text for _, text in zero.ticks][:2] == ["≈ 0", "10⁻⁵"]
    assert zero.at(0.0) == 0 < zero.at(3e-5)
    long = logarithmic([1e3, 1e-30, 5e-7], (0, 100))  # what is beyond twelve decades counts as zero
    assert [text for _, text in long.ticks] == ["≈ 0", "10⁻⁷", "10⁻⁵", "10⁻³", "10⁻¹", "10", "10³"]
    assert long.at(1e-30) == 0


def test_when_a_log_scale_is_asked_for() -> None:
    assert spans_decades([1e-3, 1.0, 0.0, math.nan])
    assert not spans_decades([0.5, 1.0])
    assert not spans_decades([-1e-3, 1.0])
    assert not spans_decades([0.0, math.nan])


def test_a_line_has_gaps_where_nothing_is_known() -> None:
    text = svg(chart(objective=[1.0, 2.0, math.nan, 4.0, math.inf, 5.0, 6.0]))
    (line,) = re.findall(r'class="line line-0" d="([^"]+)"', text)
    assert line.count("M") == 3
    assert "nan" not in line
    assert "inf" not in line
    assert text.count('class="dot') == 5
    assert svg(chart(objective=[math.nan])) == ""


def test_a_long_run_is_thinned_and_keeps_its_ends() -> None:
    text = svg(chart(objective=[1000.0 - i for i in range(1000)]))
    titles = re.findall(r"<g><title>objective: ([^<]+)</title>", text)
    assert len(titles) <= POINTS
    assert titles[0] == "1,000.0 (exchanges: 0)"
    assert titles[-1] == "1.0000 (exchanges: 999)"
    assert 'class="dot' not in text


def test_it_is_sound_and_says_what_it_shows() -> None:
    banded = Chart(
        **{
            **vars(chart(mean=[1.0, 0.1], least=[0.5, 0.0], most=[2.0, 0.2], tolerance=[0.01, 0.01])),
            "band": ("least", "most", "least to most"),
            "levels": ("tolerance",),
            "log_y": True,
        }
    )
    root = ElementTree.fromstring(svg(banded))
    assert root.get("role") == "img"
    assert [root[0].text, root[1].text] == ["A <title>", "a & b"]
    assert root.get("aria-labelledby") == f"{root[0].get('id')} {root[1].get('id')}"
    (band,) = [e for e in root.iter("path") if e.get("class") == "band"]
    assert str(band.get("d")).count("L") == 3
    assert [item.text or item[0].tail for item in ElementTree.fromstring(legend(banded))] == [
        "mean",
        "least to most",
        "tolerance",
    ]
    assert legend(chart(objective=[1.0])) == ""
