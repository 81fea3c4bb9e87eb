"""The sentences of a report, in one place, so that the page and the Markdown say the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedpact.report.numbers import given, number, percent
from fedpact.report.record import Failed, Record, Verification
from fedpact.tasks.base import Bounded

State = Literal["met", "within tolerance", "not met", "not known", "withheld"]

#: Status of a run that is not solved -> headline, what to do next.
ENDINGS = {
    "max_rounds": (
        "Not solved: the run ended before the tolerances were met",
        "Allow more exchanges (max_rounds) and run the job again with “fedpact run JOB --force”. If that is too slow, "
        "ask for a looser tolerance or choose another method.",
    ),
    "interrupted": (
        "Not solved: the run was interrupted",
        "Continue it with “fedpact run JOB --resume”; the model will be the same as without the interruption.",
    ),
    "stalled": (
        "Not solved: the method stopped making progress",
        "Ask for less (a looser bound, a lower recall), scale the columns (standardize), add a little regularization, "
        "or choose another method. If functions are user-written, check their gradients.",
    ),
    "infeasible": (
        "Not solved: the constraints cannot all be met",
        "Loosen the bounds of the owners named above, or give the model more freedom (columns, less regularization). "
        "More exchanges will not help.",
    ),
    "unbounded": (
        "Not solved: the objective is unbounded below, so there is no best model",
        "Add a regularizer (a small weight is enough), or bound the coefficients.",
    ),
    "client_lost": (
        "Not solved: an owner stopped answering",
        "Bring that owner back and continue from the last checkpoint with “fedpact run JOB --resume”.",
    ),
}
#: A price below this fraction of the largest one is rounding error: the bound is not active.
FREE = 1e-6
#: The effect of a price is shown for a bound that is loosened by this fraction.
LOOSENED = 0.1

STATIONARITY = (
    "How much a small change of the model could still gain: the largest slope, over all coefficients, of the objective "
    "plus the constraints weighted by their prices (the Lagrangian). Zero is perfect."
)
FEASIBILITY = (
    "The largest error over all constraints: one exceeds its bound, or has slack and yet a price. Zero is perfect."
)
LEFT = (
    "Every field that left an owner is listed by name: the coordinator received nothing else. Of a masked field it saw "
    "only the sum over all owners, never what one of them sent."
)
REPEAT = "The same job, the same files at the owners and the same versions reproduce this run."


@dataclass(frozen=True)
class Verdict:
    """good: solved, and every constraint met; todo: what to do next if not."""

    good: bool
    headline: str
    sentences: tuple[str, ...]
    todo: str = ""


# ---------------------------------------------------------------------------------------------------------- constraints


def named(owner: str) -> str:
    return "the server" if owner == "server" else f"“{owner}”"


def state(one: Bounded, tol: float) -> State:
    """tol: tolerance of feasibility; a bound exceeded by at most tol counts as met."""
    if one.promise:
        return "met" if one.promise == "kept" else "not met"
    if one.withheld:
        return "withheld"
    if math.isnan(one.slack):
        return "not known"
    if one.slack >= 0:
        return "met"
    if -one.slack <= max(tol, one.allowed):
        return "within tolerance"
    return "not met"


def count_met(record: Record) -> int:
    """How many constraints are met, or exceeded within the tolerance."""
    states = [state(one, record.tol[1]) for one in record.bounded]
    return states.count("met") + states.count("within tolerance")


def by_slack(one: Bounded) -> tuple[bool, float]:
    """Sort key: unknown slack first, then the smallest."""
    return not math.isnan(one.slack), one.slack


def tightest(bounded: Sequence[Bounded]) -> Bounded:
    return min(bounded, key=by_slack)


def _describe_slack(record: Record) -> list[str]:
    """How many constraints are met, and the one with the least slack; empty without constraints."""
    if not record.bounded:
        return []
    met = f"Constraints met: {count_met(record):,} of {len(record.bounded):,}."
    told = [one for one in record.bounded if not one.withheld]
    if silent := len(record.bounded) - len(told):
        met += f" Withheld by their owners, and covered by the certificate alone: {silent:,}."
    if not told:
        return [met]
    one = tightest(told)
    if math.isnan(one.slack):
        return [f"{met} Not known: {one.what} at {named(one.owner)}."]
    where = f"at {named(one.owner)}, {one.what} is {number(one.value)} where at most {given(one.bound)} is allowed"
    if one.slack >= 0:
        return [f"{met} Smallest slack: {number(one.slack)}; {where}."]
    exceeded = sum(b.slack < 0 for b in record.bounded)
    tolerance = f"the tolerance is {given(record.tol[1])}"
    return [f"{met} Bounds exceeded: {exceeded:,}, by at most {number(-one.slack)} ({tolerance}); {where}."]


# -------------------------------------------------------------------------------------------------------------- verdict


def verdict(record: Record) -> Verdict:
    """Good only if status, certificate and every constraint agree."""
    if not record.solved:
        return _unsolved(record)
    total = len(record.bounded)
    missed = total - count_met(record) - sum(one.withheld for one in record.bounded)
    sentences = (*_describe_slack(record), _certified(record))
    if missed:
        todo = "Do not use this model. Check that values and bounds are measured on the rows the run was given."
        return Verdict(False, f"Constraints not met: {missed:,} of {total:,}", sentences, todo)
    if not within_tolerances(record):
        todo = "Do not rely on this record: a solved run meets its tolerances. Run the job again."
        return Verdict(False, "Called solved, but the certificate misses the tolerances", sentences, todo)
    if not total:
        return Verdict(True, "Solved, without constraints", sentences)
    if any(one.slack < 0 for one in record.bounded):
        return Verdict(True, "All constraints are met, within the tolerance", sentences)
    return Verdict(True, "All constraints are met", sentences)


def _unsolved(record: Record) -> Verdict:
    headline, todo = ENDINGS.get(record.status, (f"Not solved: the run ended as {record.status}", "See the notes."))
    if record.status == "infeasible" and not record.convex:
        headline = "Not solved: no model that meets all constraints was found"
    reason = record.reason.strip() or "no reason was recorded"
    if not reason.endswith((".", "!", "?")):
        reason += "."
    sentences = (
        f"Status {record.status}: {reason}",
        *_describe_slack(record),
        "The model returned is the best point found. It carries no guarantee.",
    )
    return Verdict(False, headline, sentences, todo)


# ------------------------------------------------------------------------------------------------------------- evidence

UNSIGNED = (
    "Nobody signed: this page states what the coordinator computed. With keys of the owners ([keys] in the job) each "
    "of them signs its numbers, and “fedpact verify” checks them."
)
#: What no owner can sign.
REST = "history, traffic, times, and what it says about a table of its own"
#: Failures that a verdict lists; the section on evidence has them all.
LISTED = 3


def describe_evidence(found: Verification | None) -> list[str]:
    """Who signed what, and how far that goes."""
    if found is None:
        return [UNSIGNED]
    sentences = ["No owner signed."]
    if found.signed:
        sentences = [
            f"Signed by: {', '.join(map(named, found.signed))}. Each signed the job, the model, a commitment to its "
            "table, its own numbers, and its part of the certificate's sums."
        ]
    if found.coordinator:
        sentences.append(f"The coordinator signed the rest: {REST}.")
    else:
        sentences.append(f"The rest is the coordinator's word, which it did not sign: {REST}.")
    if found.pinned:
        sentences.append("The keys were compared with those that the reader of the evidence stated.")
    else:
        sentences.append(
            "The keys are those that the run folder itself names: this shows that it is consistent, not who signed. "
            "State the keys that you know (--roster, --key) to check that."
        )
    if found.asked and found.verified:
        sentences.append("The owners were asked again, and recomputed the same.")
    elif found.asked:
        sentences.append("The owners were asked again, and do not say the same.")
    return sentences


def explain_failure(one: Failed) -> str:
    who = f"{named(one.owner)}: " if one.owner else ""
    return f"{one.file}: {who}{one.what}."


def unverified(found: Verification) -> Verdict:
    """The verdict on a run whose evidence does not hold, whatever its record says."""
    shown = [explain_failure(one) for one in found.failed[:LISTED]]
    if len(found.failed) > LISTED:
        shown.append(f"And {len(found.failed) - LISTED:,} more, below.")
    todo = "Do not rely on this page. Ask for the folder as the run left it, or run the job again."
    return Verdict(False, "Not verified: the evidence of this run does not hold", tuple(shown), todo)


# ---------------------------------------------------------------------------------------------------------- certificate


def within_tolerances(record: Record) -> bool:
    return record.stationarity <= record.tol[0] and record.feasibility <= record.tol[1]


def count_unpriced(record: Record) -> int:
    """How many bounds are not part of the problem that was solved, such as one on a recall."""
    return sum(math.isnan(one.price) for one in record.bounded)


def _certified(record: Record) -> str:
    """The certificate and what it proves, in a sentence or two."""
    checked = (
        f"The certificate was checked: stationarity {number(record.stationarity)} ({given(record.tol[0])} asked for) "
        f"and feasibility {number(record.feasibility)} ({given(record.tol[1])} asked for)."
    )
    if not within_tolerances(record):
        return checked
    if not record.convex:
        return f"{checked} The problem is not convex: the model is stationary, not proven optimal."
    if count_unpriced(record):
        return f"{checked} Up to these tolerances it is optimal for the bounds that the method worked with."
    return f"{checked} Up to these tolerances it is the best model that meets the constraints."


def certificate(record: Record) -> list[str]:
    """What the two numbers prove here, and what they do not."""
    sentences = [
        "Both numbers belong to exactly the model and the prices returned, and were recomputed from the problem by "
        "code that no method shares. They are absolute, in the units of the objective and of the constraints."
    ]
    if not record.solved and within_tolerances(record):
        sentences.append("Both are within the tolerances, and yet the run is not solved; the verdict says why.")
    elif not record.solved:
        sentences.append("The tolerances were not reached: nothing is proven about this model.")
    elif not record.convex:
        sentences.append(
            "The objective or a constraint is not convex, so a model that passes is stationary, not proven optimal: no "
            "small change improves it, but a model far away might be better."
        )
    else:
        sentences.append(
            "The objective and the constraints are convex, so a model that passes is optimal: up to the tolerances, no "
            "other model that meets the constraints has a lower objective."
        )
        if count := count_unpriced(record):
            sentences.append(
                f"Outside this proof (bounds without a price): {count:,}. They are measured, and met or not as the "
                "table says, but a better model that meets all of them may exist."
            )
    return sentences


# --------------------------------------------------------------------------------------------------------------- prices


def step(one: Bounded) -> float:
    """By how much a bound is loosened to show the effect of its price: a tenth of it."""
    return LOOSENED * abs(one.bound) or LOOSENED**2


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


def prices(record: Record) -> list[str]:
    """What the bounds cost, for someone who has to decide about them."""
    sentences = [
        "The price of a bound is by how much the objective would fall for each unit that the bound is raised (a shadow "
        "price). It holds for small changes near this model."
    ]
    if not record.solved:
        sentences.append("The run is not solved: these prices are those of the last iterate, not what the bounds cost.")
        return sentences
    active = priced(record)
    unpriced = count_unpriced(record)
    free = len(record.bounded) - len(active) - unpriced
    if active:
        sentences.append(_dearest(record, active[0]))
    if free:
        sentences.append(f"Bounds of price zero: {free:,}. Loosening them would gain nothing.")
    if unpriced:
        sentences.append(
            f"Bounds without a price: {unpriced:,}. The method works with other bounds that imply them, not with them."
        )
    return sentences


def _dearest(record: Record, one: Bounded) -> str:
    loosened = f"{given(one.bound + step(one))} instead of {given(one.bound)}"
    falls = number(gain(one))
    if part := relative_gain(record, one):
        falls += f" ({part})"
    return (
        f"The most expensive bound is that of {named(one.owner)} on {one.what}, with a price of "
        f"{number(abs(one.price))}: {loosened} would lower the objective by about {falls}."
    )
