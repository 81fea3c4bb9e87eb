"""Sections about the model and what it does: its coefficients, what owners measured with it, and their data."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence

from fedpact.report import wording
from fedpact.report.charts import Estimate, Forest
from fedpact.report.coefficients import INTERCEPT, Coefficient
from fedpact.report.content import NONE, Block, Cell, Charts, Items, Section, Table, capital, cell
from fedpact.report.language import say
from fedpact.report.numbers import number
from fedpact.report.record import Measured, Record
from fedpact.statistics import Estimate as Estimated

#: At most so many rows in a chart of intervals; more coefficients than this are drawn by size.
DRAWN = 30
#: A ratio above exp of this is shown as that.
LARGEST = 700.0
#: How the measures of the model without constraints are named.
BEFORE = " without constraints"
#: Rates of decisions, which charts show.
RATES = ("recall", "specificity", "accuracy", "positive rate")
#: How counts of rows are named, which are about the data and not about the model.
ROWS = "rows"

#: Where standard errors come from.
INFERENCE = {
    "sandwich": "Standard errors from the spread of the rows at each owner (sandwich), with the constraints that bind: "
    "they hold whether or not the model is right, for these owners.",
    "hc0": "Standard errors from the spread of all rows, as if drawn from one population (HC0).",
    "model": "Standard errors that the likelihood of the model implies: they hold if the model is right.",
    "bootstrap": "Standard errors and intervals from solving again with drawn weights of the rows (bootstrap).",
    "clustered": "Standard errors from the spread of the owners' sums: they hold for owners not seen, if many are.",
}

# ---------------------------------------------------------------------------------------------------------------- model


def model(record: Record, coefficients: Sequence[Coefficient]) -> Section:
    """The coefficients, as a table in the units of the columns and as a chart of their effects."""
    about = say("Coefficients are in the units of the columns: what one unit more adds to the score.")
    known = any(math.isfinite(one.se) for one in coefficients)
    if known:
        about += " " + say(INFERENCE.get(record.inference, ""))
    elif not record.inference:
        about += " " + say("This run has no standard errors; [solve] inference asks for them.")
    table = Table("Coefficients", ("Column", "Estimate"), tuple((Cell(o.name), cell(o.estimate)) for o in coefficients))
    if known:
        table = tabulate("Coefficients", "Column", coefficients)
    blocks: list[Block] = [about, Charts((_draw_effects(coefficients),)), table]
    blocks += _tabulate_ratios(coefficients)
    if record.priced:
        blocks.append(tabulate("Prices of what binds", "Constraint", record.priced))
    if record.rates:
        blocks.append(_tabulate_rates(record.rates))
    if record.uncovered:
        blocks.append(Items(tuple(say(sentence) for sentence in record.uncovered)))
    return Section("model", "The model", tuple(blocks))


def tabulate(caption: str, head: str, estimates: Sequence[Coefficient | Estimated]) -> Table:
    """Estimates with their standard errors, tests and intervals."""
    rows = []
    for one in estimates:
        numbers = (one.estimate, one.se, one.z, one.p, one.low, one.high)
        cells = [Cell(NONE) if math.isnan(value) else cell(value) for value in numbers]
        rows.append((Cell(one.name), *cells))
    return Table(caption, (head, "Estimate", "Standard error", "z", "p", "95 % low", "95 % high"), tuple(rows))


def _tabulate_ratios(coefficients: Sequence[Coefficient]) -> list[Table]:
    """exp of the coefficients with their intervals, without intercepts; no table where they have no meaning."""
    rows = []
    head = ""
    for one in coefficients:
        if not one.ratio or not math.isfinite(one.low) or one.name.endswith(INTERCEPT):
            continue
        head = one.ratio
        ratios = [math.exp(min(value, LARGEST)) for value in (one.estimate, one.low, one.high)]
        rows.append((Cell(one.name), *map(cell, ratios)))
    if not rows:
        return []
    return [Table("Ratios for one unit more of the column", ("Column", head, "95 % low", "95 % high"), tuple(rows))]


def _tabulate_rates(rates: Sequence[Estimated]) -> Table:
    """Rates of this model and, by the bootstrap, of models trained on other rows."""
    rows = tuple((Cell(one.name), *map(cell, (one.estimate, one.se, one.low, one.high))) for one in rates)
    caption = "Rates over all owners, and their range for models trained on other rows"
    return Table(caption, ("Rate", "Estimate", "Standard error", "95 % low", "95 % high"), rows)


def _draw_effects(coefficients: Sequence[Coefficient]) -> Forest:
    """Effects of one deviation of the column, so that they can be compared; without intercepts."""
    shown = [one for one in coefficients if not one.name.endswith(INTERCEPT)]
    if len(shown) > DRAWN:
        shown = sorted(shown, key=lambda one: -abs(one.estimate * one.scale))[:DRAWN]
    rows = []
    for one in shown:
        rows.append(Estimate(one.name, one.estimate * one.scale, one.low * one.scale, one.high * one.scale))
    largest = max(shown, key=lambda one: abs(one.estimate * one.scale), default=None)
    about = say("Effects of {count:,} columns on the score.", count=len(rows))
    if largest is not None:
        effect = number(largest.estimate * largest.scale)
        about += " " + say("The largest is that of {name}: {effect}.", name=largest.name, effect=effect)
    x = say("effect of one unit on the score")
    if any(one.scale != 1 for one in shown):
        x = say("effect of one deviation on the score")
    return Forest(key="effects", title=say("Effects"), about=about, x=x, rows=tuple(rows), reference=0.0)


# ------------------------------------------------------------------------------------------------------------ measures


def measured(record: Record) -> Section:
    """What owners measured with the model, as charts and as a table."""
    if record.parties:
        return _measured_by_coordinator(record)
    found = dict.fromkeys(name for one in record.measured for name in (*one.numbers, *one.withheld))
    names = [name for name in _group(list(found)) if not is_about_data(name)]
    rows = []
    for one in record.measured:
        rows.append((Cell(one.owner), *(_measured_cell(one, name, is_count(name, record.measured)) for name in names)))
    about = say("What each owner measured with this model on its own rows.")
    if any(is_rate(name) for name in names):
        about += " " + say(
            "Rates of these rows have no confidence interval, since the model was fitted to them: expect less on new "
            "rows, the fewer rows an owner has and the more columns there are. fedpact evaluate measures new rows."
        )
    if remarks := [*wording.describe_one_class(record), *wording.describe_perfection(record)]:
        about += " " + " ".join(remarks)
    if any(one.withheld for one in record.measured):
        about += " " + say("A number is withheld where it would tell of fewer rows than the owner's policy allows.")
    blocks: list[Block] = [about]
    if drawn := tuple(_draw_measures(record, names)):
        blocks.append(Charts(drawn))
    if names:
        blocks.append(Table("Measured at the owners", ("Owner", *names), tuple(rows)))
    return Section("measured", "Measured at the owners", tuple(blocks))


def _draw_measures(record: Record, names: Sequence[str]) -> Iterable[Forest]:
    """A chart for every rate; the groups of each owner stand together in one."""
    estimated = [name for name in names if is_rate(name)]
    charts: dict[str, dict[str, str]] = {}
    for name in estimated:  # "recall of ill = yes", the same "where sex = f", or "accuracy of sex = f"
        what, of, group = name.partition(" where ")
        if not of and not is_of_class(name, estimated):
            what, of, group = name.partition(" of ")
        charts.setdefault(say("{what} by group", what=what) if of else what, {})[name] = group
    for place, (name, parts) in enumerate(charts.items()):
        rows = []
        for one in record.measured[: DRAWN // len(parts)]:
            for part, group in parts.items():
                if part in one.numbers:
                    label = f"{one.owner}, {group}" if group else one.owner
                    rows.append(Estimate(label, one.numbers[part], math.nan, math.nan))
        told = ", ".join(f"{row.label} {number(row.value)}" for row in rows)
        about = say("{what} by owner, on the rows trained on: {told}.", what=name, told=told)
        yield Forest(key=f"measured-{place}", title=capital(name), about=about, x=name, rows=tuple(rows))


def _measured_by_coordinator(record: Record) -> Section:
    """Of a vertical model: by whom labels and scores are held, for all people together."""
    [one] = record.measured
    rows = []
    for name in _group(list(one.numbers)):
        rows.append((Cell(name), _measured_cell(one, name, is_count(name, record.measured))))
    about = say(
        "What the coordinator counted on the people in common, with the labels and groups that it has. The model was "
        "fitted to these people: expect less on others."
    )
    table = Table("Measured", ("Measure", "Value"), tuple(rows))
    remarks = wording.describe_one_class(record)
    return Section("measured", "Measured on the people in common", (about, *remarks, table))


# ----------------------------------------------------------------------------------------------------------------- data


def data(record: Record) -> Section | None:
    """Rows by owner, of every class and group; None where nobody told them, or parties hold columns."""
    found = dict.fromkeys(name for one in record.measured for name in (*one.numbers, *one.withheld))
    names = [name for name in found if is_about_data(name)]
    if record.parties or not names:
        return None
    rows = [(Cell(one.owner), *(_measured_cell(one, name, True) for name in names)) for one in record.measured]
    totals = {name: [one.numbers[name] for one in record.measured if name in one.numbers] for name in names}
    about = say(
        "{rows:,.0f} rows at {owners:,} owners.",
        rows=sum(totals[names[0]]),
        owners=len(totals[names[0]]),
    )
    table = Table("Rows by owner", ("Owner", *names), tuple(rows))
    return Section("data", "Data by owner", (about, table))


def is_recall(name: str, names: Container[str]) -> bool:
    """Whether it is the recall of a class on all rows: that has a specificity beside it."""
    return name.startswith("recall") and name.replace("recall", "specificity", 1) in names


def is_of_class(name: str, names: Container[str]) -> bool:
    """Whether it is the recall or the specificity of a class on all rows: each has the other beside it."""
    return is_recall(name, names) or (
        name.startswith("specificity") and name.replace("specificity", "recall", 1) in names
    )


def is_about_data(name: str) -> bool:
    """Whether it counts rows whatever the model is: "rows", "rows with ill = yes", "rows of sex = f"."""
    return name == ROWS or name.startswith(f"{ROWS} ")


def is_rate(name: str) -> bool:
    """Whether it is a rate of decisions: "recall", "recall of sex = f"."""
    return name.partition(" of ")[0] in RATES and BEFORE not in name


def is_count(name: str, told: Sequence[Measured]) -> bool:
    """Whether a measure is an integer at every owner, and no rate."""
    values = [one.numbers[name] for one in told if name in one.numbers]
    return not is_rate(name) and all(float(value).is_integer() for value in values)


def _measured_cell(one: Measured, name: str, count: bool) -> Cell:
    if name in one.withheld:
        return Cell(say("withheld"))
    if name not in one.numbers:
        return Cell(NONE)
    value = one.numbers[name]
    return Cell(number(int(value)) if count else number(float(value)), value)


def _group(names: Sequence[str]) -> tuple[str, ...]:
    """In order, but "recall without constraints" directly after "recall"."""
    first = {name: next(other for other in names if f"{name} ".startswith(f"{other} ")) for name in names}
    return tuple(sorted(names, key=lambda name: names.index(first[name])))
