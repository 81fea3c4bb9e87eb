"""The sentences of a report, in one place, so that the page and the Markdown say the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedpact.problem.certificate import TOGETHER
from fedpact.report.numbers import given, number, percent
from fedpact.report.record import Failed, Record, Verification
from fedpact.tasks.base import Bounded

State = Literal["met", "within tolerance", "within one row", "kept", "not kept", "not met", "not known", "withheld"]
#: States of a constraint that holds.
GOOD = ("met", "within tolerance", "within one row", "kept")
#: Counted rates are compared with their bounds up to rounding.
ROUNDING = 1e-9

#: How the ledger marks a field of which only the sum was seen.
MASKED = " (masked)"
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
#: What to do where the decisions of a certified model are not those asked for.
ASK_FOR_LESS = "Ask for less (a looser bound, a lower recall), or give the model more columns."
#: A price below this fraction of the largest one is rounding error: the bound is not active.
FREE = 1e-6
#: The effect of a price is shown for a bound that is loosened by this fraction; of a rate by one point.
LOOSENED = 0.1
POINT = 0.01

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
PARTIES = (
    "Parties hold different columns of the same people. Here are the names of those that the model uses; no value of "
    "them is in this report, and each party alone has the coefficients of its own."
)
LABELS = (
    "By agreement the coordinator has the label of everyone in common, from its holder, {}, and the groups where there "
    "are any. It measured the model by itself, from these and from the sums of the parties' scores."
)
#: What a coordinator that keeps what it received could infer, by method. docs/explanation/what-the-server-sees.md runs
#: the attacks.
INFERRED = {
    "vertical-al": (
        "An exchange gives the coordinator the sum over the parties of the scores of their gradients, whose slopes it "
        "knows. After about as many exchanges as there are columns in all, these determine the inner products between "
        "all people's rows, over all columns together: the pooled rows up to a rotation of the columns. Whoever knows "
        "some of these people from elsewhere can locate the others."
    ),
    "vertical-exact": (
        "The first exchange gives the coordinator the inner products between all people's rows, over all columns "
        "together: the pooled rows up to a rotation of the columns, at once. Whoever knows some of these people from "
        "elsewhere can locate the others. The other vertical methods tell the same over their exchanges."
    ),
    "fair-vfl": (
        "A round gives the coordinator the parties' scores, whose slopes it knows. After about as many rounds as there "
        "are columns, these determine the inner products between all people's rows: the rows up to a rotation of the "
        "columns. Whoever knows some of these people from elsewhere can locate the others. Parties receive everyone's "
        "label, group and score."
    ),
}
INFERRED["fedbcd"] = INFERRED["fair-vfl"]
SUMMED = "Sums were masked: this is about the columns of all parties together, not about whose they are."
BARE = "Sums were not masked: the coordinator saw every party's own numbers; this holds for each party's columns alone."
REPEAT = "The same job, the same files at the owners and the same versions reproduce this run."


@dataclass(frozen=True)
class Verdict:
    """good: solved, and every constraint met; todo: what to do next if not; warned: good, but with a remark on it."""

    good: bool
    headline: str
    sentences: tuple[str, ...]
    todo: str = ""
    warned: bool = False

    @property
    def mark(self) -> str:
        if self.warned:
            return "!"
        return "✓" if self.good else "✗"


# -------------------------------------------------------------------------------------------------------------- parties


def infer(record: Record) -> list[str]:
    """What the coordinator of a vertical model could infer from what it received."""
    told = INFERRED.get(record.method)
    if told is None:
        return []
    masked = all(any(field.endswith(MASKED) for field in one.fields) for one in record.sent)
    return [told, SUMMED if masked else BARE]


# ---------------------------------------------------------------------------------------------------------- constraints


def named(owner: str) -> str:
    if owner == TOGETHER:
        return owner
    return "the server" if owner == "server" else f"“{owner}”"


def placed(owner: str) -> str:
    """\"at “clinic”\"."""
    if owner == TOGETHER:
        return "over all owners together"
    return f"at {named(owner)}"


def limit(one: Bounded) -> str:
    """\"at least 0.9\"."""
    side = "at least" if one.least else "at most"
    return f"{side} {given(one.bound)}"


def promise(one: Bounded) -> str:
    """\"for new rows, with confidence 0.95: kept\"."""
    return f"for new rows, with confidence {given(one.confidence)}: {one.promise}"


def state(one: Bounded, tol: float) -> State:
    """tol: tolerance of feasibility; a bound exceeded by at most tol counts as met, unless decisions are counted."""
    if one.promise:
        return "kept" if one.promise == "kept" else "not kept"
    if one.withheld:
        return "withheld"
    if math.isnan(one.slack):
        return "not known"
    if one.slack >= 0 or (one.counted and one.slack >= -ROUNDING):
        return "met"
    if one.counted:
        return "within one row" if -one.slack <= one.allowed + ROUNDING else "not met"
    return "within tolerance" if -one.slack <= tol else "not met"


def used(one: Bounded) -> float:
    """The fraction of what a bound allows that is used; NaN where it has no meaning.

    Of a rate that is bounded from below: of the misses that the bound allows.
    """
    if not one.least:
        fine = one.bound > 0 and one.value >= 0
        return one.value / one.bound if fine else math.nan
    if not one.rows or one.bound >= 1:
        return math.nan
    return (1 - one.value) / (1 - one.bound)


def count_met(record: Record) -> int:
    """How many constraints are met, or exceeded within what is allowed, or promised and kept."""
    return sum(state(one, record.tol[1]) in GOOD for one in record.bounded)


def measurable(record: Record) -> list[Bounded]:
    """The constraints whose values decide: those that are told, and not a promise about other rows."""
    return [one for one in record.bounded if not one.withheld and not one.promise]


def explain_constraints(record: Record) -> list[str]:
    """How the table of constraints is to be read."""
    bounded = record.bounded
    sentences = ["Slack is the distance to the bound; a negative slack is on its wrong side."]
    if any(not one.counted and not one.promise for one in bounded):
        sentences[0] += f" A bound counts as met if it is missed by no more than the tolerance, {given(record.tol[1])}."
    if any(one.counted for one in bounded):
        sentences.append(
            "Rates are counted on the rows that the model was trained on, by its decisions themselves; a range is the "
            "exact 95 % confidence interval of a rate, from the number of rows behind it."
        )
    if any(one.allowed for one in bounded):
        sentences.append("A gap may exceed its bound by one row's worth: less than that, no count can show.")
    if any(one.least and one.rows for one in bounded):
        sentences.append("Of a rate with a lower bound, “bound used” is the part of the allowed misses that is used.")
    if record.promised:
        sentences.append(f"{record.promised} The values in the table are still those of the rows trained on.")
    return sentences


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
    if silent := sum(state(one, record.tol[1]) == "withheld" for one in record.bounded):
        met += f" Withheld by their owners, and covered by the certificate alone: {silent:,}."
    sentences = [met, *_describe_promises(record)]
    told = measurable(record)
    if not told:
        return sentences
    one = tightest(told)
    if math.isnan(one.slack):
        sentences[0] += f" Not known: {one.what} {placed(one.owner)}."
        return sentences
    allowed = "asked for" if one.least else "allowed"
    where = f"{placed(one.owner)}, {one.what} is {number(one.value)} where {limit(one)} is {allowed}"
    if one.slack >= 0:
        sentences[0] += f" Smallest slack: {number(one.slack)}; {where}."
        return sentences
    missed = [other for other in told if other.slack < 0]
    verb = "missed" if any(other.least for other in missed) else "exceeded"
    tolerance = f"the tolerance is {given(record.tol[1])}"
    if one.counted:
        tolerance = "by count"
    sentences[0] += f" Bounds {verb}: {len(missed):,}, by at most {number(-one.slack)} ({tolerance}); {where}."
    return sentences


def _describe_promises(record: Record) -> list[str]:
    """What is promised for rows not yet seen, and whether that is kept."""
    promised = [one for one in record.bounded if one.promise]
    if not promised:
        return []
    kept = sum(one.promise == "kept" for one in promised)
    levels = " and ".join(given(level) for level in sorted({one.confidence for one in promised}))
    return [f"Promises for rows not yet seen, with confidence {levels}: {kept:,} of {len(promised):,} kept."]


# ------------------------------------------------------------------------------------------------- one class for all


ONE_CLASS = "Of no use: the model gives all rows one class"


def describe_one_class(record: Record) -> list[str]:
    """Where the model gives all rows one class, so that it tells nobody apart."""
    owners: dict[str, list[str]] = {}
    for one in record.measured:
        if one.one_class:
            owners.setdefault(one.one_class, []).append(one.owner)
    sentences = []
    for given_class, where in owners.items():
        who = ", ".join(map(named, where))
        if len(where) == len(record.measured):
            who = "every owner"
        sentences.append(f"At {who} the model calls every row {given_class}: it tells no rows apart there.")
    return sentences


def is_one_class(record: Record) -> bool:
    """Whether the model gives one class to all rows of everybody."""
    found = {one.one_class for one in record.measured}
    return len(found) == 1 and found != {""}


# -------------------------------------------------------------------------------------------------------------- verdict


def verdict(record: Record) -> Verdict:
    """Good only if status, certificate and every constraint agree."""
    if not record.solved:
        return _unsolved(record)
    total = len(record.bounded)
    silent = sum(state(one, record.tol[1]) == "withheld" for one in record.bounded)
    missed = total - count_met(record) - silent
    sentences = (*_describe_slack(record), _certified(record))
    if missed:
        todo = "Do not use this model. Check that values and bounds are measured on the rows the run was given."
        return Verdict(False, f"Constraints not met: {missed:,} of {total:,}", sentences, todo)
    if not within_tolerances(record):
        todo = "Do not rely on this record: a solved run meets its tolerances. Run the job again."
        return Verdict(False, "Called solved, but the certificate misses the tolerances", sentences, todo)
    headline = _praise(record)
    remarks = describe_one_class(record)
    if is_one_class(record):
        todo = "Do not use this model: it decides nothing. Ask for less, or give it columns that tell classes apart."
        return Verdict(False, ONE_CLASS, (*remarks, f"{headline}.", *sentences), todo)
    if remarks:
        todo = "Do not use this model at the owners named above. Ask for less there, or give the model more columns."
        return Verdict(True, f"{headline}, with a remark", (*remarks, *sentences), todo, warned=True)
    return Verdict(True, headline, sentences)


def _praise(record: Record) -> str:
    """What is good about a solved run."""
    if not record.bounded:
        return "Solved, without constraints"
    states = [state(one, record.tol[1]) for one in record.bounded]
    if all(found == "kept" for found in states):
        return "All promises for new rows are kept"
    if "within tolerance" in states:
        return "All constraints are met, within the tolerance"
    if "within one row" in states:
        return "All constraints are met, gaps within one row"
    return "All constraints are met"


def _unsolved(record: Record) -> Verdict:
    headline, todo = ENDINGS.get(record.status, (f"Not solved: the run ended as {record.status}", "See the notes."))
    states = [state(one, record.tol[1]) for one in record.bounded]
    missed = sum(one.counted and found == "not met" for one, found in zip(record.bounded, states, strict=True))
    if record.status == "infeasible" and not record.convex:
        headline = "Not solved: no model that meets all constraints was found"
    elif record.status == "stalled" and missed:
        headline = "Not solved: the model's decisions miss a bound"
        todo = ASK_FOR_LESS
    elif record.status == "stalled" and "not kept" in states:
        headline = "Not solved: the promises for new rows are not borne out"
        todo = f"Give the owners more rows. {ASK_FOR_LESS}"
    reason = record.reason.strip() or "no reason was recorded"
    if not reason.endswith((".", "!", "?")):
        reason += "."
    sentences = (
        f"Status {record.status}: {reason}",
        *describe_one_class(record),
        *_describe_slack(record),
        "The model returned is the best point found. It carries no guarantee.",
    )
    return Verdict(False, headline, sentences, todo)


# ------------------------------------------------------------------------------------------------------------- evidence

UNSIGNED = (
    "Nobody signed: this page states what the coordinator computed. With keys of the owners ([keys] in the job) each "
    "of them signs its numbers, and “fedpact verify” checks them."
)
UNSIGNED_PARTIES = (
    "Nobody signed: this page states what the coordinator computed. The parties of a vertical model have no numbers of "
    "their own to sign."
)
#: What no owner can sign.
REST = (
    "history, traffic, times, values over the rows of all owners together, how scores become probabilities, and what "
    "it says about a table of its own"
)
#: Failures that a verdict lists; the section on evidence has them all.
LISTED = 3


def describe_evidence(found: Verification | None, parties: bool = False) -> list[str]:
    """Who signed what, and how far that goes. parties: whether owners hold columns"""
    if found is None:
        return [UNSIGNED_PARTIES if parties else UNSIGNED]
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


def prices(record: Record) -> list[str]:
    """What the bounds cost, for someone who has to decide about them."""
    sentences = [
        "The price of a bound is by how much the objective would fall for each unit that the bound is loosened (a "
        "shadow price): an upper bound raised, a lower one lowered. It holds for small changes near this model."
    ]
    if any(one.counted for one in record.bounded):
        sentences.append(
            "Bounds on decisions are priced by the problem that was solved last, in which decisions are smoothed a "
            "little: take these prices as estimates."
        )
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
    loosened = f"{given(loosen(one))} instead of {given(one.bound)}"
    falls = number(gain(one))
    if part := relative_gain(record, one):
        falls += f" ({part})"
    dearest = (
        f"The most expensive bound is that of {named(one.owner)} on {one.what}, with a price of "
        f"{number(abs(one.price))}: {loosened} would lower the objective by about {falls}."
    )
    if one.counted and one.least:
        dearest += " One point more would cost about as much."
    return dearest


#: Where standard errors come from.
INFERENCE = {
    "sandwich": "Standard errors from the spread of the rows at each owner (sandwich), with the constraints that bind: "
    "they hold whether or not the model is right, for these owners.",
    "hc0": "Standard errors from the spread of all rows, as if drawn from one population (HC0).",
    "model": "Standard errors that the likelihood of the model implies: they hold if the model is right.",
    "clustered": "Standard errors from the spread of the owners' sums: they hold for owners not seen, if many are.",
}
