"""What is said about the constraints of a run: met or not, where it is tightest, and the verdict on all of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from fedpact.problem.certificate import TOGETHER
from fedpact.report.assurance import describe_certificate, within_tolerances
from fedpact.report.content import Verdict, capital
from fedpact.report.language import say
from fedpact.report.numbers import given, number
from fedpact.report.record import Record
from fedpact.statistics.evaluation import Evaluation, Outcome
from fedpact.tasks.base import Bounded

State = Literal["met", "within tolerance", "within one row", "made", "not made", "not met", "not known", "withheld"]
#: States of a constraint that holds.
GOOD = ("met", "within tolerance", "within one row", "made")
#: Counted rates are compared with their bounds up to rounding.
ROUNDING = 1e-9
#: Kinds of constraints that the verdict tells about; the table has them all.
TOLD = 4

#: Status of a run that is not solved -> headline, what to do next.
ENDINGS = {
    "feasible": (
        "Not certified: every bound is met, and nothing shows that the model is the best",
        "Use it if the bounds are what you need. More passes may find a better model.",
    ),
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
    "unproven": (
        "Not solved: the promises for new rows are not borne out",
        "Give the owners more rows of the class or the groups that the promise is about, or ask for less. An owner "
        "that cannot bear a promise may be left out of it (promise_for), and trained with all the same.",
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
#: The method that ends when its passes are done, and what to do where it ends too early.
MINIBATCHES = "stochastic-al"
MORE_PASSES = (
    'Train longer: method = "stochastic-al" in [solve] and passes = 100 in [solve.options]; run the job again with '
    "“fedpact run JOB --force”. Or ask for less (a looser bound, a lower recall), or give the model more freedom."
)
#: Of a network whose training came to its end.
TRAINED = (
    "A network is trained by minibatches for a number of passes, and hardly ever becomes stationary: another network "
    "may meet the same bounds with fewer errors. That the bounds hold was counted, and does not depend on it."
)
ONE_CLASS = "Of no use: the model gives all rows one class"

# ---------------------------------------------------------------------------------------------------------- constraints


def named(owner: str) -> str:
    if owner == TOGETHER:
        return say(owner)
    if owner == "server":
        return say("the server")
    return f"“{owner}”"


def placed(owner: str) -> str:
    """\"at “clinic”\"."""
    if owner == TOGETHER:
        return say("over all owners together")
    return say("at {owner}", owner=named(owner))


def limit(one: Bounded | Outcome) -> str:
    """\"at least 0.9\"."""
    if one.least:
        return say("at least {bound}", bound=given(one.bound))
    return say("at most {bound}", bound=given(one.bound))


def promise(one: Bounded) -> str:
    """\"for new rows, with confidence 0.95: made\"."""
    return f"for new rows, with confidence {given(one.confidence)}: {one.promise}"


def state(one: Bounded, tol: float) -> State:
    """tol: tolerance of feasibility; a bound exceeded by at most tol counts as met, unless decisions are counted."""
    if one.promise:
        return "made" if one.promise == "made" else "not made"
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
    """How many constraints are met, or exceeded within what is allowed, or promised."""
    return sum(state(one, record.tol[1]) in GOOD for one in record.bounded)


def explain_constraints(record: Record) -> list[str]:
    """How the table of constraints is to be read."""
    bounded = record.bounded
    sentences = [say("Slack is the distance to the bound; a negative slack is on its wrong side.")]
    if any(not one.counted and not one.promise for one in bounded):
        sentences.append(
            say(
                "A bound counts as met if it is missed by no more than the tolerance, {tolerance}.",
                tolerance=given(record.tol[1]),
            )
        )
    if any(one.counted for one in bounded):
        sentences.append(
            say(
                "Rates are counted on the rows that the model was trained on, by its decisions themselves. They have "
                "no confidence interval: the model was fitted to these rows, and new rows do worse."
            )
        )
    if any(one.allowed for one in bounded):
        sentences.append(say("A gap may exceed its bound by one row's worth: less than that, no count can show."))
    if any(one.least and one.rows for one in bounded):
        sentences.append(
            say("Of a rate with a lower bound, “bound used” is the part of the allowed misses that is used.")
        )
    if record.promised:
        sentences.append(record.promised)
        sentences.append(say("The values in the table are still those of the rows trained on."))
    return [" ".join(sentences)]


def by_slack(one: Bounded) -> tuple[bool, float]:
    """Sort key: unknown slack first, then the smallest."""
    return not math.isnan(one.slack), one.slack


def tightest(bounded: Sequence[Bounded]) -> Bounded:
    return min(bounded, key=by_slack)


def by_kind(record: Record) -> list[tuple[Bounded, int]]:
    """Of everything that is bounded, the holder nearest to its bound and how many hold one; withheld ones left out."""
    kinds: dict[tuple[str, bool], list[Bounded]] = {}
    for one in record.bounded:
        if not one.withheld:
            kinds.setdefault((one.what, one.least), []).append(one)
    return [(tightest(found), len(found)) for found in kinds.values()]


def describe_asked(record: Record) -> list[str]:
    """What was asked for and what it came to: how many constraints are met, then a sentence for each kind of them."""
    if not record.bounded:
        return []
    met = say("Constraints met: {met:,} of {total:,}.", met=count_met(record), total=len(record.bounded))
    if silent := sum(state(one, record.tol[1]) == "withheld" for one in record.bounded):
        withheld = say("Withheld by their owners, and covered by the certificate alone: {count:,}.", count=silent)
        met = f"{met} {withheld}"
    kinds = by_kind(record)
    sentences = [met, *_describe_promises(record)]
    sentences += [_describe_kind(one, holders, record.tol[1]) for one, holders in kinds[:TOLD]]
    if len(kinds) > TOLD:
        sentences.append(say("The table has {count:,} more kinds of them.", count=len(kinds) - TOLD))
    return sentences


def _describe_kind(one: Bounded, holders: int, tol: float) -> str:
    """\"Recall, at least 0.9 asked for: 0.913 at “north”, the lowest of 3 (60 rows trained on).\""""
    if math.isnan(one.value):
        return say("Not known: {what} {place}.", what=one.what, place=placed(one.owner))
    asked = say("{what}, {limit} asked for:", what=capital(one.what), limit=limit(one))
    told = f"{asked} {number(one.value)} {placed(one.owner)}"
    if holders > 1:
        told += ", " + say("the one nearest to its bound, of {count:,}", count=holders)
    remarks = []
    if one.rows:
        remarks.append(say("{rows:,} rows trained on", rows=one.rows))
    if one.slack < 0 and not one.promise:
        remarks.append(_describe_excess(one, tol))
    if remarks:
        told += f" ({'; '.join(remarks)})"
    return f"{told}."


def _describe_excess(one: Bounded, tol: float) -> str:
    """By how much a bound is missed, and whether that is allowed."""
    excess = number(-one.slack)
    if one.counted:
        return say("missed by {excess}, by count", excess=excess)
    if -one.slack <= tol:
        return say("missed by {excess}, within the tolerance of {tolerance}", excess=excess, tolerance=given(tol))
    return say("missed by {excess}, beyond the tolerance of {tolerance}", excess=excess, tolerance=given(tol))


def _describe_promises(record: Record) -> list[str]:
    """What is promised for rows not yet seen, and whether the promise could be made."""
    promised = [one for one in record.bounded if one.promise]
    if not promised:
        return []
    levels = " and ".join(given(level) for level in sorted({one.confidence for one in promised}))
    return [
        say(
            "Promises for rows not yet seen, with confidence {levels}: {made:,} of {total:,} made.",
            levels=levels,
            made=sum(one.promise == "made" for one in promised),
            total=len(promised),
        )
    ]


# ------------------------------------------------------------------------------------------------- one class for all


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
            who = say("every owner")
        sentences.append(
            say(
                "At {owners} the model calls every row {label}: it tells no rows apart there.",
                owners=who,
                label=given_class,
            )
        )
    return sentences


def describe_perfection(record: Record) -> list[str]:
    """Where the model is right about every row: a column may give the label away."""
    found = [one.numbers.get("accuracy", math.nan) for one in record.measured]
    if not found or min(found) < 1 or any(map(math.isnan, found)):
        return []
    return [
        say(
            "The model is right about every row of every owner. That is rare in good data: a column may be the label "
            "in other words, or be known only after it. fedpact profile names columns that decide the label alone."
        )
    ]


def is_one_class(record: Record) -> bool:
    """Whether the model gives one class to all rows of everybody."""
    found = {one.one_class for one in record.measured}
    return len(found) == 1 and found != {""}


# -------------------------------------------------------------------------------------------------------------- verdict


def verdict(record: Record, evaluations: Sequence[Evaluation] = ()) -> Verdict:
    """Good only if status, certificate and every constraint agree, and the last evaluation contradicts none of them.

    evaluations: of its model on rows that nobody trained on, the oldest first
    """
    found = _verdict_of_training(record)
    judged = [one for one in evaluations if one.bounds]
    if not judged:
        return found
    sentences = (*describe_evaluation(judged), *found.sentences)
    if not judged[-1].contradicted:
        return replace(found, sentences=sentences)
    todo = say(
        "Do not rely on these bounds for rows like those of the evaluation. Find out how they differ from the rows "
        "trained on, and train again with rows like them."
    )
    headline = say(
        "Contradicted by new rows: {count:,} of {total:,} constraints",
        count=judged[-1].count("contradicted"),
        total=len(judged[-1].bounds),
    )
    return Verdict(False, headline, sentences, todo)


def describe_evaluation(evaluations: Sequence[Evaluation]) -> list[str]:
    """What the last evaluation shows of the bounds, and how many before it contradicted one."""
    last = evaluations[-1]
    words = say(
        "Last evaluation, on rows that nobody trained on ({time}): of {total:,} bounds {met:,} borne out, {missed:,} "
        "contradicted, {open:,} open.",
        time=last.time,
        total=len(last.bounds),
        met=last.count("borne out"),
        missed=last.count("contradicted"),
        open=last.count("open"),
    )
    if len(evaluations) > 1:
        contradicting = sum(one.contradicted for one in evaluations)
        words += " " + say(
            "Of {total:,} evaluations in all {count:,} contradicted a bound.",
            total=len(evaluations),
            count=contradicting,
        )
    return [words]


def _verdict_of_training(record: Record) -> Verdict:
    """What the run itself shows."""
    if not record.usable:
        return _unsolved(record)
    total = len(record.bounded)
    silent = sum(state(one, record.tol[1]) == "withheld" for one in record.bounded)
    missed = total - count_met(record) - silent
    sentences = (*describe_asked(record), describe_certificate(record))
    if record.trained:
        sentences = (*sentences, say(TRAINED))
    if missed:
        todo = say("Do not use this model. Check that values and bounds are measured on the rows the run was given.")
        headline = say("Constraints not met: {missed:,} of {total:,}", missed=missed, total=total)
        return Verdict(False, headline, sentences, todo)
    if not within_tolerances(record) and not record.trained:
        todo = say("Do not rely on this record: a solved run meets its tolerances. Run the job again.")
        return Verdict(False, say("Called solved, but the certificate misses the tolerances"), sentences, todo)
    headline = _praise(record)
    remarks = describe_one_class(record)
    if is_one_class(record):
        todo = say(
            "Do not use this model: it decides nothing. Ask for less, or give it columns that tell classes apart."
        )
        return Verdict(False, say(ONE_CLASS), (*remarks, f"{headline}.", *sentences), todo)
    if remarks:
        todo = say(
            "Do not use this model at the owners named above. Ask for less there, or give the model more columns."
        )
        headline = say("{headline}, with a remark", headline=headline)
        return Verdict(True, headline, (*remarks, *sentences), todo, warned=True)
    if record.trained:
        return Verdict(True, say("{headline}, by a network without a certificate", headline=headline), sentences)
    return Verdict(True, headline, sentences)


def _praise(record: Record) -> str:
    """What is good about a solved run."""
    if not record.bounded:
        return say("Trained, without constraints") if record.trained else say("Solved, without constraints")
    states = [state(one, record.tol[1]) for one in record.bounded]
    if all(found == "made" for found in states):
        return say("All promises for new rows are made")
    if "within tolerance" in states:
        return say("All constraints are met, within the tolerance")
    if "within one row" in states:
        return say("All constraints are met, gaps within one row")
    return say("All constraints are met")


def _unsolved(record: Record) -> Verdict:
    unknown = (f"Not solved: the run ended as {record.status}", "See the notes.")
    headline, todo = ENDINGS.get(record.status, unknown)
    states = [state(one, record.tol[1]) for one in record.bounded]
    missed = sum(one.counted and found == "not met" for one, found in zip(record.bounded, states, strict=True))
    if record.status == "infeasible" and not record.convex:
        headline = "Not solved: no model that meets all constraints was found"
    elif record.method == MINIBATCHES and record.status == "max_rounds":
        headline = "Not solved: all passes over the rows are done, and what was asked for is missed"
        todo = MORE_PASSES
    elif record.status == "stalled" and missed:
        headline = "Not solved: the model's decisions miss a bound"
        todo = ASK_FOR_LESS
    reason = record.reason.strip() or say("no reason was recorded")
    if not reason.endswith((".", "!", "?")):
        reason += "."
    sentences = (
        say("Status {status}: {reason}", status=record.status, reason=reason),
        *describe_one_class(record),
        *describe_perfection(record),
        *describe_asked(record),
        say("The model returned is the best point found. It carries no guarantee."),
    )
    return Verdict(False, say(headline), sentences, say(todo))
