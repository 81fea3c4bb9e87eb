"""A classifier for the owner that it serves worst, from tables: iFedDR (6.1) as a task; see `fair_classification`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from fedpact.errors import OptionError
from fedpact.problem import Measure, Share
from fedpact.prox import Blocks, Box, Prox, Simplex, Zero
from fedpact.tasks import checks
from fedpact.tasks.base import Bounded, key
from fedpact.tasks.checks import Labels
from fedpact.tasks.fair_classification import VotedLoss
from fedpact.tasks.model import Model
from fedpact.tasks.regression import losses, mean_loss, scores
from fedpact.tasks.tables import ClassTask, Rows
from fedpact.tasks.weights import EQUAL, row_weights
from fedpact.types import Matrix, Vector


@dataclass(frozen=True, kw_only=True)
class Minimax(ClassTask):
    """min_u max_v (1/n) sum_i v_i loss_i(u) + h(u) - smoothing/(2n) |v|^2 over votes v >= 0 of mean one.   iFedDR (6.1)

    w is (u, v): the model, and one vote an owner. Votes are prices: v_i / n is that of the bound loss_i(u) <= t in
    min t, the largest loss, up to the smoothing. Without constraints all votes are one: the mean loss is minimised.

    roster: the owners by name, in order, once they are known; the number of an owner is its place
    """

    name: ClassVar[str] = "minimax"
    title: ClassVar[str] = "a classifier that is best for the owners with the largest loss, who get the most votes"

    smoothing: float = key(
        0.1, "the larger, the more equal the votes of owners; 0: all to those with the largest loss", "number"
    )
    penalty: float = key(
        100.0, "for an owner that moves its own vote on the way; the larger, the nearer to exact votes", "number"
    )
    roster: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "roster", tuple(self.roster))
        super().__post_init__()
        checks.check_nonnegative("smoothing", self.smoothing)
        checks.check_positive("penalty", self.penalty)
        if self.owners_weigh != EQUAL:
            raise OptionError(
                f"task {self.name!r} weighs owners by their votes; take owners_weigh out",
                code="FP-OPTION-740",
                key="owners_weigh",
            )

    def among(self, names: Sequence[str]) -> Self:
        return replace(super().among(names), roster=tuple(names))

    def build(self, owner: str, rows: Rows) -> Share:
        if owner not in self.roster:
            raise OptionError(
                f"owner {owner!r} has no vote: the task names {', '.join(self.roster) or 'nobody'}; state it among all "
                "owners of the job",
                code="FP-OPTION-741",
            )
        classes = len(self.classes)
        matrix = checks.features(owner, rows.X)
        labels = checks.check_codes(owner, "label", rows.y, len(matrix), classes)
        loss = mean_loss(matrix, labels, classes, row_weights(self, replace(rows, y=labels)))
        number = self.roster.index(owner)
        voted = VotedLoss(loss, number, len(self.roster), weight=0.0, smoothing=self.smoothing, penalty=self.penalty)
        return Share(voted, name=owner, measures=Told(matrix, labels, classes, voted.split, number))

    def regularizer(self) -> Prox:
        votes: Prox = Box(1.0, 1.0)
        if self.constrained:
            votes = Simplex(self.owners)
        return Blocks(super().regularizer() or Zero(), votes, self.parameters, saddle=True)

    def make_model(self, w: Vector) -> Model:
        return super().make_model(w[: self.parameters])

    def votes(self, w: Vector) -> dict[str, float]:
        """Every owner's vote; they average one."""
        return dict(zip(self.roster, w[self.parameters :].tolist(), strict=True))

    def sentence(self) -> str:
        of = f"{self.label!r} " if self.label else ""
        return (
            f"A classifier of {of}for the worst served of {self.owners} owners: votes follow the largest mean losses."
        )

    def bounded(self, owner: str, values: Vector, price: Vector, told: Mapping[str, float]) -> Iterator[Bounded]:
        return iter(())


@dataclass(frozen=True, eq=False)
class Told:
    """What an owner tells about w = (u, v): its mean loss, accuracy and vote, of which the largest and least count."""

    X: Matrix
    y: Labels
    classes: int
    split: int
    number: int

    def __call__(self, w: Vector) -> dict[str, Measure]:
        rows = len(self.y)
        score = scores(w[: self.split], self.X, self.classes)
        found = np.zeros(rows)
        for label in range(self.classes):
            own = self.y == label
            found[own] = losses(score[own], label)
        right = np.argmax(score, axis=1) == self.y
        return {
            "rows": Measure.count(rows),
            "mean loss": Measure(float(np.mean(found)), rows),
            "accuracy": Measure(float(np.mean(right)), rows),
            "vote": Measure(float(w[self.split + self.number]), rows),
        }
