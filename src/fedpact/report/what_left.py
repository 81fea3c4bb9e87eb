"""What left the owners of a run, in words: by message, as the ledger names them."""

from __future__ import annotations

from collections.abc import Iterable

from fedpact.report.assurance import MASKED

#: What is in a message, for each kind of message that leaves an owner.
WORDS = {
    "public keys of masks": ("Offered", "Agreed"),
    "ids of its people, as the alignment sends them": ("Named", "Tagged", "Blinded", "Multiplied"),
    "how many people all parties have": ("Accepted",),
    "the label of every person": ("Labels",),
    "the groups of every person": ("Groups",),
    "sizes and scales of its part, names of columns": (
        "Introduced",
        "Described",
        "Gauged",
        "Looked",
        "Curved",
        "Begun",
        "Started",
    ),
    "counts and moments of its columns": ("Moments", "Tally"),
    "sums over its rows of losses, gradients and second derivatives": (
        *("Judged", "Joined", "System", "Bends", "Linearized", "Probed", "Balanced", "Weighed", "WeighedParts"),
        *("Inferred", "LogLoss"),
    ),
    "its step of the model": (
        *("Moved", "Updated", "Part", "Worked", "Corrected", "Reflected", "Resolved", "Repriced"),
        *("Advanced", "Sketched"),
    ),
    "its part of the scores": ("Scores", "Spread"),
    "counts of decisions": ("Tallied", "Cells", "Together", "Decided", "Erred", "Binned", "Counted"),
    "whether its promises hold": ("Proposed", "Tested"),
    "price and value of its constraint": ("Concluded",),
    "its coefficients and their standard errors": ("Revealed", "Told", "Kept"),
    "measures of the finished model": ("Measured",),
    "its signature": ("Signed", "Attested"),
    "that it is ready, or has ended": ("Equipped", "Confirmed", "Ended"),
}
_WORDS = {message: words for words, messages in WORDS.items() for message in messages}


def tell_what_left(fields: Iterable[str], where: str = "Solution.communication") -> str:
    """In a sentence. fields: of all owners, as the ledger names them; where: that has all of them by name"""
    found = set(fields)
    messages = {field.removesuffix(MASKED).rpartition(".")[0] for field in found}
    told = [words for words, names in WORDS.items() if messages & set(names)]
    told += sorted(messages - _WORDS.keys())  # of a method that was added by a user
    seen = ""
    if masked := sum(field.endswith(MASKED) for field in found):
        seen = f"; of {masked} of {len(found)} fields the coordinator saw only the sum over all owners"
    return f"{'; '.join(told)}; nothing else ({where} has every field by name){seen}"
