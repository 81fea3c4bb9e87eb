"""What a run means, in sentences: one place for all of them, so that the page and the Markdown say the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedpact.report.record import Record
from fedpact.tasks.base import Bounded

State = Literal["met", "within tolerance", "not met", "not known"]

#: How a run that is not solved ended: a headline, and what to do next.
ENDINGS = {
    "max_rounds": (
        "Not solved: the run ended before the tolerances were met",
        "Allow more exchanges (max_rounds) and run the job again with “fedpact run JOB --force”. If that is too slow, "
        "ask for a looser tolerance or choose another method.",
    ),
    "interrupted": (
        "Not solved: the run was interrupted",
        "Go on from where it stopped with “fedpact run JOB --resume”; the model will be the one of an uninterrupted "
        "run.",
    ),
    "stalled": (
        "Not solved: the method stopped making progress",
        "Ask for less (a looser bound, a lower recall), scale the columns (standardize), add a little regularization, "
        "or choose another method. Where functions are user-written, check that gradients belong to their functions.",
    ),
    "infeasible": (
        "Not solved: the constraints cannot all be met",
        "Loosen the bounds of the owners named above, or give the model more to work with (columns, less "
        "regularization). More exchanges will not help.",
    ),
    "unbounded": (
        "Not solved: the objective falls without end, so there is no best model",
        "Add a regularizer (a small weight is enough), or bound the coefficients.",
    ),
    "client_lost": (
        "Not solved: an owner stopped answering",
        "Bring that owner back and go on from the last checkpoint with “fedpact run JOB --resume”.",
    ),
}
#: A price below this part of the largest one is rounding: the bound costs nothing.
FREE = 1e-6
#: Prices are told for bounds that are loosened by this part.
LOOSENED = 0.1

#: Signs of a number that someone chose, at most.
CHOSEN = 7

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Verdict:
    """good: solved, and every constraint met; todo: what to do next when not."""

    good: bool
    headline: str
    sentences: tuple[str, ...]
    todo: str = ""


def number(value: float) -> str:
    """Such as 0.2000, 31.42 and 1,234, or two digits and a power of ten where it is small; a count as it is."""
    if isinstance(value, int):
        return f"{value:,}"
    if math.isnan(value):
        return "not known"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if 1e-3 <= abs(value) < 1e9:
        text = f"{value:,.{min(4, max(0, 4 - math.floor(math.log10(abs(value)))))}f}"
    elif value:
        mantissa, exponent = f"{value:.1e}".split("e")
        text = f"{mantissa}×{power(int(exponent))}"
    else:
        text = "0"
    return text.replace("-", "−")


def given(value: float) -> str:
    """A number that someone chose, as it was written: 0.2, 0.001, 10⁻⁵; one that was computed, rounded."""
    text = f"{value:g}"
    if len(text) > CHOSEN:
        return number(value)
    mantissa, _, exponent = text.partition("e")
    if exponent:
        return ("" if mantissa == "1" else f"{mantissa}×") + power(int(exponent))
    return text.replace("-", "−").replace("inf", "∞").replace("nan", "not known")


def power(exponent: int) -> str:
    """10 to a whole power, such as 10⁻³."""
    return "10" + str(exponent).translate(SUPERSCRIPTS)


def size(count: float) -> str:
    """A number of bytes, such as 19.8 kB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} bytes"


def duration(seconds: float) -> str:
    if not seconds >= 60:  # not known included
        return f"{number(seconds) if not seconds >= 0 else format(seconds, '.1f')} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def named(owner: str) -> str:
    return "the server" if owner == "server" else f"“{owner}”"


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def state(one: Bounded, tol: float) -> State:
    """tol: of feasibility; a bound that is exceeded by no more counts as met."""
    if math.isnan(one.slack):
        return "not known"
    if one.slack >= 0:
        return "met"
    return "within tolerance" if -one.slack <= tol else "not met"


def tightest(bounded: Sequence[Bounded]) -> Bounded:
    """The one with the least slack; one that is not known before all others."""
    return min(bounded, key=by_slack)


def by_slack(one: Bounded) -> tuple[bool, float]:
    return not math.isnan(one.slack), one.slack


def met(record: Record) -> int:
    return sum(state(one, record.tol[1]) in ("met", "within tolerance") for one in record.bounded)


def reached(record: Record) -> bool:
    return record.stationarity <= record.tol[0] and record.feasibility <= record.tol[1]


def verdict(record: Record) -> Verdict:
    """Good only when status, certificate and every constraint agree that it is."""
    if not record.solved:
        return _unsolved(record)
    total, kept = len(record.bounded), met(record)
    sentences = (*_room(record), _certified(record))
    if kept < total:
        todo = "Do not use this model. Check that values and bounds are measured on the rows the run was given."
        return Verdict(False, f"{total - kept:,} of {counted(total, 'constraint')} not met", sentences, todo)
    if not reached(record):
        todo = "Do not rely on this record: a solved run meets its tolerances. Run the job again."
        return Verdict(False, "Called solved, but the certificate misses the tolerances", sentences, todo)
    if not total:
        return Verdict(True, "Solved; no constraint was asked for", sentences)
    which = {1: "The constraint is", 2: "Both constraints are"}.get(total, f"All {total:,} constraints are")
    within = ", within the tolerance asked for" if any(one.slack < 0 for one in record.bounded) else ""
    return Verdict(True, f"{which} met{within}", sentences)


def _unsolved(record: Record) -> Verdict:
    headline, todo = ENDINGS.get(record.status, (f"Not solved: the run ended as {record.status}", "See the notes."))
    if record.status == "infeasible" and not record.convex:
        headline = "Not solved: no model that meets all constraints was found"
    sentences = (
        f"How it ended ({record.status}): {_sentence(record.reason)}",
        *_room(record),
        "The model handed back is the best point that was reached. It carries no guarantee.",
    )
    return Verdict(False, headline, sentences, todo)


def _certified(record: Record) -> str:
    proof = "The problem is not convex: the model is stationary, not proven optimal."
    if record.convex:
        which = "meets the constraints" if not outside(record) else "meets the bounds that the method worked with"
        proof = f"Up to these tolerances it is the best model that {which}."
    return (
        f"The certificate was checked: stationarity {number(record.stationarity)} ({given(record.tol[0])} asked for) "
        f"and feasibility {number(record.feasibility)} ({given(record.tol[1])} asked for)."
        f"{' ' + proof if reached(record) else ''}"
    )


def outside(record: Record) -> int:
    """How many bounds are not part of the problem that was solved, such as one on a recall: these have no price."""
    return sum(math.isnan(one.price) for one in record.bounded)


def _room(record: Record) -> list[str]:
    """How many constraints hold at the model, and the one with the least slack; nothing when there are none."""
    if not record.bounded:
        return []
    total, kept = len(record.bounded), met(record)
    one = tightest(record.bounded)
    where = f"at {named(one.owner)}, {one.what} is {number(one.value)} where at most {given(one.bound)} is allowed"
    if one.slack >= 0:
        return [f"The least room is {number(one.slack)}: {where}."]
    if kept == total:
        over = sum(b.slack < 0 for b in record.bounded)
        exceed = "exceeds its bound, by" if over == 1 else "exceed their bounds, by at most"
        tolerance = f"inside the tolerance of {given(record.tol[1])}"
        return [f"{over:,} of {total:,} {exceed} {number(-one.slack)}, {tolerance}: {where}."]
    found = f"At this model {kept:,} of {counted(total, 'constraint')} {'is' if kept == 1 else 'are'} met."
    if math.isnan(one.slack):
        return [f"{found} What {named(one.owner)} has of {one.what} is not known."]
    return [f"{found} The largest excess is {number(-one.slack)}: {where}."]


def _sentence(text: str) -> str:
    text = text.strip() or "no reason was recorded"
    return text if text.endswith((".", "!", "?")) else text + "."


#: The two numbers of the certificate, in words.
STATIONARITY = (
    "How much a small change of the model could still gain: the steepest slope left, over all coefficients, when the "
    "objective and the constraints at their prices are added up. Zero is perfect."
)
FEASIBILITY = (
    "By how much the worst constraint misses: it exceeds its bound, or it carries a price although it has room. Zero "
    "is perfect."
)


def certificate(record: Record) -> list[str]:
    """What the two numbers prove here, and what they do not."""
    sentences = [
        "Both numbers belong to exactly the model and the prices handed back, and were recomputed from the problem by "
        "code that no method shares. They are absolute, in the units of the objective and of the constraints."
    ]
    if not record.solved:
        sentences.append(
            "Both are within the tolerances, and yet the run is not solved; the verdict says why."
            if reached(record)
            else "The tolerances were not reached: nothing is proven about this model."
        )
    elif record.convex:
        sentences.append(
            "The objective and the constraints are convex, so a model that passes is optimal: up to the tolerances, no "
            "other model that meets the constraints has a lower objective."
        )
        if count := outside(record):
            sentences.append(
                f"{counted(count, 'bound')} without a price {'is' if count == 1 else 'are'} outside this proof: "
                "measured, and met or not as the table says, but a better model that meets all of them may exist."
            )
    else:
        sentences.append(
            "The objective or a constraint is not convex, so a model that passes is stationary, not proven optimal: no "
            "small change improves it, but a model far away might be better."
        )
    return sentences


def step(one: Bounded) -> float:
    """By how much a bound is loosened when its price is told: a tenth of it."""
    return LOOSENED * abs(one.bound) or LOOSENED**2


def gain(one: Bounded) -> float:
    """By how much the objective would fall then. The price of an equality has a sign, of no meaning here."""
    return abs(one.price) * step(one)


def priced(record: Record) -> list[Bounded]:
    """The bounds that cost something, the dearest step first."""
    largest = max((abs(one.price) for one in record.bounded if math.isfinite(one.price)), default=0.0)
    return sorted((one for one in record.bounded if abs(one.price) > FREE * largest), key=lambda one: -gain(one))


def prices(record: Record) -> list[str]:
    """What one unit more slack would buy, for someone who has to decide about bounds."""
    found = priced(record)
    unknown = outside(record)
    free = len(record.bounded) - len(found) - unknown
    sentences = [
        "A price says what a bound costs: by how much the objective would fall for each unit that the bound is raised. "
        "It holds for small changes near this model."
    ]
    if not record.solved:
        sentences.append("The run is not solved: these prices are where the method stood, not what the bounds cost.")
        return sentences
    if found:
        one = found[0]
        sentences.append(
            f"The dearest bound is that of {named(one.owner)} on {one.what}: {given(one.bound + step(one))} instead of "
            f"{given(one.bound)} would lower the objective by about {number(gain(one))}{of_objective(record, one)}. "
            f"A whole unit would buy {number(abs(one.price))}."
        )
    if free:
        which = counted(free, "bound") if len(record.bounded) > 1 else "The bound"
        costs, it = ("costs", "it") if free == 1 else ("cost", "them")
        sentences.append(f"{which} {costs} nothing: loosening {it} would buy nothing.")
    if unknown:
        has, it = ("has", "it") if unknown == 1 else ("have", "them")
        sentences.append(
            f"{counted(unknown, 'bound')} {has} no price: the method does not work with {it} directly, but with others "
            f"that imply {it}."
        )
    return sentences


def of_objective(record: Record, one: Bounded) -> str:
    """The gain of one step as a part of the objective, such as ', 5.6 % of it'; empty where that means nothing."""
    part = gain(one) / abs(record.objective) if record.objective else math.nan
    return f", {percent(part)} of it" if math.isfinite(part) else ""


def percent(part: float) -> str:
    return f"{number(100 * part) if 0 < abs(part) < 1e-4 else format(100 * part, '.1f')} %"


LEFT = (
    "Every field that left an owner is listed by name: the coordinator received nothing else. Of a masked field it saw "
    "only the sum over all owners, never what one of them sent."
)
REPEAT = "The same job, the same files at the owners and the same versions give this run again."
