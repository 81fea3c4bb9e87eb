"""What is said about proofs: the certificate, who signed, and what a coordinator could infer from what it received."""

from __future__ import annotations

import math
from dataclasses import replace

from fedpact.report.content import Section, Verdict
from fedpact.report.language import say
from fedpact.report.numbers import given, number
from fedpact.report.record import Failed, Record, Verification

#: How the ledger marks a field of which only the sum was seen.
MASKED = " (masked)"

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
    "By agreement the coordinator has the label of everyone in common, from its holder, {holder}, and the groups where "
    "there are any. It measured the model by itself, from these and from the sums of the parties' scores."
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
#: What goes the other way. docs/explanation/security.md says it before a run.
WENT_DOWN = (
    "What went down to the parties: slopes of everyone's loss, whose signs at the start tell every party everyone's "
    "label, and which later follow the scores of all parties together. So each party learnt the labels and, about, the "
    "pooled scores."
)
SUMMED = "Sums were masked: this is about the columns of all parties together, not about whose they are."
SPREAD = (
    "For the standard errors of its own coefficients every party was told the covariance of the whole model, in "
    "rotated columns: second moments of all columns, not whose they are. It sent how far penalty and tolerance reach."
)
BARE = "Sums were not masked: the coordinator saw every party's own numbers; this holds for each party's columns alone."
REPEAT = "The same job, the same files at the owners and the same versions reproduce this run."


def infer(record: Record) -> list[str]:
    """What the coordinator of a vertical model could infer from what it received."""
    told = INFERRED.get(record.method)
    if told is None:
        return []
    masked = all(any(field.endswith(MASKED) for field in one.fields) for one in record.sent)
    words = [say(told), say(SUMMED if masked else BARE)]
    if record.inference:
        words.append(say(SPREAD))
    return words


# ---------------------------------------------------------------------------------------------------------- certificate


def within_tolerances(record: Record) -> bool:
    return record.stationarity <= record.tol[0] and record.feasibility <= record.tol[1]


def count_unpriced(record: Record) -> int:
    """How many bounds are not part of the problem that was solved, such as one on a recall."""
    return sum(math.isnan(one.price) for one in record.bounded)


def describe_certificate(record: Record) -> str:
    """The certificate and what it proves, in a sentence or two."""
    checked = say(
        "The certificate was checked: stationarity {stationarity} ({first} asked for) and feasibility {feasibility} "
        "({second} asked for).",
        stationarity=number(record.stationarity),
        first=given(record.tol[0]),
        feasibility=number(record.feasibility),
        second=given(record.tol[1]),
    )
    if not within_tolerances(record):
        return checked
    proven = "Up to these tolerances it is the best model that meets the constraints."
    if not record.convex:
        proven = "The problem is not convex: the model is stationary, not proven optimal."
    elif count_unpriced(record):
        proven = "Up to these tolerances it is optimal for the bounds that the method worked with."
    return f"{checked} {say(proven)}"


def explain_certificate(record: Record) -> list[str]:
    """What the two numbers prove here, and what they do not."""
    sentences = [
        "Both numbers belong to exactly the model and the prices returned, and were recomputed from the problem by "
        "code that no method shares. They are absolute, in the units of the objective and of the constraints."
    ]
    if not record.solved and within_tolerances(record):
        sentences.append("Both are within the tolerances, and yet the run is not solved; the verdict says why.")
    elif record.trained:
        sentences.append(
            "The tolerances were not reached: the network is not stationary, and nothing is proven about its loss. "
            "Constraints on decisions were counted, and are met or not as the table says."
        )
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
    said = [say(sentence) for sentence in sentences]
    said.append(say("The objective is {value}; less is better.", value=number(record.objective)))
    count = count_unpriced(record)
    if record.solved and record.convex and count:
        said.append(
            say(
                "Outside this proof (bounds without a price): {count:,}. They are measured, and met or not as the "
                "table says, but a better model that meets all of them may exist.",
                count=count,
            )
        )
    return said


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
    "history, traffic, times, values over the rows of all owners together, curves and trade-off, how scores become "
    "probabilities, and what it says about a table of its own"
)
#: A term of the certificate that no owner has seen may cancel any residual of the others.
OWN_TERM = (
    "The job gives the coordinator a table of its own ([server]). Its term of the certificate is the coordinator's "
    "word, and so is what the certificate says: “fedpact verify RUN --job JOB”, where that table is, recomputes it."
)
#: Failures that a verdict lists; the section on evidence has them all.
LISTED = 3


#: At every place of a page of a signed run that no owner signed.
WORD = "The coordinator's word: no owner signed what is said here."
WORD_OF_HEAD = "The title and this line are the coordinator's word."
WORD_OF_END = "How the run ended, and why, is the coordinator's word: no owner signed it."
WORD_OF_NEWS = "What is said of rows that nobody trained on is the coordinator's word: no owner signed it."
#: Sections of which all is the coordinator's word.
UNSIGNED_SECTIONS = ("evaluations", "trade-off", "quality", "course", "left", "repeat", "notes")


def mark_section(section: Section, record: Record) -> Section:
    """The section, with a sentence in front where it is the coordinator's word; of a model its standard errors are."""
    unsigned = (record.coefficients, record.priced, record.rates, record.inference, record.uncovered)
    errors = section.key == "model" and any(unsigned)
    if section.key not in UNSIGNED_SECTIONS and not errors:
        return section
    return replace(section, blocks=(say(WORD), *section.blocks))


def mark_figure(name: str, value: str, remark: str, unsigned: bool) -> tuple[str, str, str]:
    if not unsigned:
        return name, value, remark
    return name, value, f"{remark}; {say('the coordinator’s word')}" if remark else say("the coordinator’s word")


def mark_verdict(verdict: Verdict, record: Record, evaluated: bool) -> Verdict:
    """The verdict, with what of it is the coordinator's word."""
    words = [] if record.usable else [say(WORD_OF_END)]
    if evaluated:
        words.append(say(WORD_OF_NEWS))
    return replace(verdict, sentences=(*verdict.sentences, *words))


def describe_evidence(found: Verification | None, parties: bool = False) -> list[str]:
    """Who signed what, and how far that goes. parties: whether owners hold columns"""
    if found is None:
        return [say(UNSIGNED_PARTIES if parties else UNSIGNED)]
    sentences = [say("No owner signed.")]
    if found.signed:
        sentences = [
            say(
                "Signed by: {owners}. Each signed the job, the model, a commitment to its table, its own numbers, and "
                "its part of the certificate's sums.",
                owners=", ".join(f"“{owner}”" for owner in found.signed),
            )
        ]
    if found.coordinator:
        sentences.append(say("The coordinator signed the rest: {rest}.", rest=say(REST)))
    else:
        sentences.append(say("The rest is the coordinator's word, which it did not sign: {rest}.", rest=say(REST)))
    if found.pinned:
        sentences.append(say("The keys were compared with those that the reader of the evidence stated."))
    else:
        sentences.append(
            say(
                "The keys are those that the run folder itself names: this shows that it is consistent, not who "
                "signed. State the keys that you know (--roster, --key) to check that."
            )
        )
    if found.foreign:
        files = ", ".join(found.foreign)
        sentences.append(say("Files in the folder that no run writes, and no owner signed: {files}.", files=files))
    if found.own_term:
        sentences.append(say(OWN_TERM))
    if found.asked and found.holds:
        sentences.append(say("The owners were asked again, and recomputed the same."))
    elif found.asked:
        sentences.append(say("The owners were asked again, and do not say the same."))
    return sentences


def explain_failure(one: Failed) -> str:
    who = ""
    if one.owner:
        who = say("the server") if one.owner == "server" else f"“{one.owner}”"
        who += ": "
    return f"{one.file}: {who}{one.what}."


def qualified(verdict: Verdict) -> Verdict:
    """The verdict on a run whose certificate rests on a term of the coordinator's own."""
    headline = say("{headline}, by the coordinator's word", headline=verdict.headline)
    return replace(verdict, headline=headline, sentences=(*verdict.sentences, say(OWN_TERM)), warned=verdict.good)


def unverified(found: Verification) -> Verdict:
    """The verdict on a run whose evidence does not hold, whatever its record says."""
    shown = [explain_failure(one) for one in found.failed[:LISTED]]
    if len(found.failed) > LISTED:
        shown.append(say("And {count:,} more, below.", count=len(found.failed) - LISTED))
    todo = say("Do not rely on this page. Ask for the folder as the run left it, or run the job again.")
    return Verdict(False, say("Not verified: the evidence of this run does not hold"), tuple(shown), todo)
