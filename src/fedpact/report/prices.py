"""What the bounds of a run cost: their prices, for someone who has to decide about them."""

from __future__ import annotations

import math

from fedpact.report.assurance import count_unpriced
from fedpact.report.content import NONE, Cell, Section, Table, cell
from fedpact.report.language import say
from fedpact.report.numbers import given, number, percent
from fedpact.report.record import Record
from fedpact.report.wording import named
from fedpact.tasks.base import Bounded

#: A price below this fraction of the largest one is rounding error: the bound is not active.
FREE = 1e-6
#: The effect of a price is shown for a bound that is loosened by this fraction; of a rate by one point.
LOOSENED = 0.1
POINT = 0.01


def step(one: Bounded) -> float:
    """By how much a bound is loosened to show the effect of its price: a tenth of it, or one point of a rate."""
    if one.counted:
        return POINT
    return LOOSENED * abs(one.bound) or LOOSENED**2


def loosen(one: Bounded) -> float:
    """The bound, loosened by that much."""
    return one.bound - step(one) if one.least else one.bound + step(one)


def gain(one: Bounded) -> float:
    """The decrease of the objective to first order. The price of an equality has a sign, without meaning here."""
    return abs(one.price) * step(one)


def relative_gain(record: Record, one: Bounded) -> str:
    """The gain in percent of the objective; empty if the objective is zero or not finite."""
    if not record.objective or not math.isfinite(gain(one) / record.objective):
        return ""
    return percent(gain(one) / abs(record.objective))


def priced(record: Record) -> list[Bounded]:
    """The active bounds, largest gain first."""
    largest = max((abs(one.price) for one in record.bounded if math.isfinite(one.price)), default=0.0)
    active = [one for one in record.bounded if abs(one.price) > FREE * largest]
    return sorted(active, key=gain, reverse=True)


def describe_prices(record: Record) -> list[str]:
    """What the bounds cost, in sentences."""
    sentences = [
        say(
            "The price of a bound is by how much the objective would fall for each unit that the bound is loosened (a "
            "shadow price): an upper bound raised, a lower one lowered. It holds for small changes near this model."
        )
    ]
    if any(one.counted for one in record.bounded) and not record.trained:
        sentences.append(
            say(
                "Bounds on decisions are priced by the problem that was solved last, in which decisions are smoothed a "
                "little: take these prices as estimates."
            )
        )
    if not record.solved:
        last = "The run is not solved: these prices are those of the last iterate, not what the bounds cost."
        return [*sentences, say(last)]
    active = priced(record)
    unpriced = count_unpriced(record)
    free = len(record.bounded) - len(active) - unpriced
    if active:
        sentences.append(_dearest(record, active[0]))
    if free:
        sentences.append(say("Bounds of price zero: {count:,}. Loosening them would gain nothing.", count=free))
    if unpriced:
        sentences.append(
            say(
                "Bounds without a price: {count:,}. The method works with other bounds that imply them, not with them.",
                count=unpriced,
            )
        )
    return sentences


def _dearest(record: Record, one: Bounded) -> str:
    falls = number(gain(one))
    if part := relative_gain(record, one):
        falls += f" ({part})"
    dearest = say(
        "The most expensive bound is that of {owner} on {what}, with a price of {price}: {loosened} instead of {bound} "
        "would lower the objective by about {falls}.",
        owner=named(one.owner),
        what=one.what,
        price=number(abs(one.price)),
        loosened=given(loosen(one)),
        bound=given(one.bound),
        falls=falls,
    )
    if one.counted and one.least:
        dearest += " " + say("One point more would cost about as much.")
    return dearest


def prices(record: Record) -> Section:
    """The section on prices."""
    columns = ("Owner", "What is bounded", "Price of one unit", "If loosened", "Objective falls by about", "Part of it")
    rows = []
    for one in priced(record):
        loosened = Cell(f"{given(one.bound)} → {given(loosen(one))}")
        part = Cell(relative_gain(record, one) or NONE)
        rows.append((Cell(one.owner), Cell(one.what), cell(abs(one.price)), loosened, cell(gain(one)), part))
    blocks: list[str | Table] = [*describe_prices(record)]
    if rows:
        blocks.append(Table("What one unit more slack would buy", columns, tuple(rows)))
    return Section("prices", "What the bounds cost", tuple(blocks))
