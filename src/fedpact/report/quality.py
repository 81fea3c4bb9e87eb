"""Sections about a classifier over the rows of all owners: the trade-off of its bounds, ROC and calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from fedpact.report.charts import Chart
from fedpact.report.content import Block, Cell, Charts, Section, Table, cell
from fedpact.report.language import say
from fedpact.report.numbers import number
from fedpact.report.record import Record
from fedpact.statistics import BoundPrice, ScoreCounts

#: Groups of bins in the chart of calibration: one for every tenth of probability.
TENTHS = 10
#: A tenth with fewer rows is not drawn: its share says little.
FEWEST = 10

# ------------------------------------------------------------------------------------------------------------ trade-off


def trade_off(record: Record) -> Section:
    """What more or less of the bounds would cost: models that were trained for them."""
    points = record.trade_off
    about = say(
        "The model was trained again for other bounds around the asked ones, each time from the model next to it. "
        "Everything is over the rows of all owners together. 100 % is what was asked for; 120 % allows a fifth more: "
        "a loss that much larger, or that many more misses of a rate."
    )
    if any(one.status != "solved" for one in points):
        about += " " + say(
            "Points that are not certified ended before their certificate was reached, and are not drawn."
        )
    names = list(dict.fromkeys(name for one in points for name in one.rates))
    columns = ("What the bounds allow", "Certified", "Objective", *names)
    table = Table("Trade-off", columns, tuple(_price_row(one, names) for one in points))
    blocks: list[Block] = [about, Charts(tuple(_draw_prices(points, names))), table]
    return Section("trade-off", "What more or less would cost", tuple(blocks))


def _price_row(one: BoundPrice, names: Sequence[str]) -> tuple[Cell, ...]:
    allowed = Cell(f"{100 * one.allowance:.0f} %", remark=say("as asked") if one.allowance == 1 else "")
    certified = Cell(say("yes") if one.status == "solved" else say("no"))
    return allowed, certified, cell(one.objective), *(cell(one.rates.get(name, math.nan)) for name in names)


def _draw_prices(points: Sequence[BoundPrice], names: Sequence[str]) -> list[Chart]:
    """Rates, and the objective, against what the bounds allow; of certified models only."""
    points = [one for one in points if one.status == "solved"]
    x = [100 * one.allowance for one in points]
    unit = say("% of what the asked bounds allow")
    drawn = []
    rates = {name: (x, [one.rates.get(name, math.nan) for one in points]) for name in names if name != "accuracy"}
    if not rates:
        rates = {name: (x, [one.rates.get(name, math.nan) for one in points]) for name in names}
    objective = {say("objective"): (x, [one.objective for one in points])}
    decided = say("Rates") if "accuracy" in names else say("Errors")
    for key, title, lines in (("rates", decided, rates), ("price", say("Objective"), objective)):
        if not lines:
            continue
        about = " ".join(
            say(
                "{what}: {first} at {low:.0f} % to {last} at {high:.0f} %.",
                what=label,
                first=number(y[0]),
                low=x[0],
                last=number(y[-1]),
                high=x[-1],
            )
            for label, (_, y) in lines.items()
        )
        drawn.append(Chart(key=key, title=title, about=about, x=unit, y="", lines=lines, log_y=False, whole=False))
    return drawn


# ---------------------------------------------------------------------------------------------------- ROC, calibration


def quality(curves: ScoreCounts) -> Section:
    """How well scores tell the classes apart, and how often probabilities are right, by sums over the owners."""
    about = say(
        "Owners counted their rows by class and score, and only the sums over all of them were seen: {negative:,.0f} "
        "rows of the first class, {positive:,.0f} of the second. Bins with too few rows for an owner's policy were "
        "merged there.",
        negative=sum(curves.negative),
        positive=sum(curves.positive),
    )
    drawn = []
    if sum(curves.negative) and sum(curves.positive):
        drawn.append(_draw_roc(curves))
    if curves.probabilities:
        drawn.append(_draw_calibration(curves))
    else:
        about += " " + say("The scores are not probabilities, so there is no calibration to draw.")
    return Section("quality", "How good its scores are", (about, Charts(tuple(drawn))))


def roc(curves: ScoreCounts) -> tuple[list[float], list[float]]:
    """False-positive and true-positive rates at every edge, from the highest score down: from (0, 0) to (1, 1)."""
    false = [0.0, *accumulate(reversed(curves.negative))]
    true = [0.0, *accumulate(reversed(curves.positive))]
    return [value / false[-1] for value in false], [value / true[-1] for value in true]


def area(x: Sequence[float], y: Sequence[float]) -> float:
    """Under the curve, by trapezoids: ties within a bin count half."""
    return sum((b - a) * (c + d) / 2 for a, b, c, d in zip(x[:-1], x[1:], y[:-1], y[1:], strict=True))


def _draw_roc(curves: ScoreCounts) -> Chart:
    false, true = roc(curves)
    under = area(false, true)
    chance = say("by chance")
    return Chart(
        key="roc",
        title=say("ROC: area under the curve {area:.3f}", area=under),
        about=say(
            "Recall against the part of the others that is taken for the class; the area is {area:.3f}.", area=under
        ),
        x=say("false-positive rate"),
        y=say("recall"),
        lines={say("model"): (false, true), chance: ((0.0, 1.0), (0.0, 1.0))},
        levels=(chance,),
        log_y=False,
        whole=False,
        unit=True,
    )


def tenths(curves: ScoreCounts) -> list[tuple[float, int, int]]:
    """For every tenth of probability with rows enough: mean probability given, rows of the second class, rows."""
    found = []
    for place in range(TENTHS):
        inside = [i for i, p in enumerate(curves.probabilities) if min(int(p * TENTHS), TENTHS - 1) == place]
        rows = [curves.negative[i] + curves.positive[i] for i in inside]
        total = sum(rows)
        if total >= FEWEST:
            given = sum(curves.probabilities[i] * count for i, count in zip(inside, rows, strict=True)) / total
            found.append((given, round(sum(curves.positive[i] for i in inside)), round(total)))
    return found


def _draw_calibration(curves: ScoreCounts) -> Chart:
    found = tenths(curves)
    given = [one for one, _, _ in found]
    share = [hits / rows for _, hits, rows in found]
    label = say("model")
    perfect = say("perfect")
    told = "; ".join(
        say("where {given:.2f} is given, {share:.2f} of {rows:,} rows", given=p, share=hits / rows, rows=rows)
        for p, hits, rows in found
    )
    return Chart(
        key="calibration",
        title=say("Calibration, on the rows trained on"),
        about=say("Part of the rows that are of the second class: {told}.", told=told),
        x=say("probability given"),
        y=say("part of the rows"),
        lines={label: (given, share), perfect: ((0.0, 1.0), (0.0, 1.0))},
        levels=(perfect,),
        log_y=False,
        whole=False,
        unit=True,
    )
