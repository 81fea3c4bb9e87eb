"""`fedpact bench designs`: what may stand inside the augmented Lagrangian of a network, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import click
import numpy as np

from fedpact.problem import Share
from fedpact.solvers.constrained.stochastic_al import Multiplier, square_rows
from fedpact.solvers.constrained.stochastic_al_pace import LOSS_FIRST, MOMENTUM, SHORTEST, STEADY, THETA
from fedpact.types import Vector
from fedpact_experiments.bench.networks import SHARE, Row, Setting, adult, fashion
from fedpact_experiments.bench.output import PAGE, Output, Table, cell, printing
from fedpact_experiments.options import COUNT, DATA, among

TITLE = "Designs of a stochastic method"
INTRODUCTION = """\
Local minibatch steps drift apart where owners differ, and the literature has several cures. This is how they do inside
the augmented Lagrangian of `stochastic-al`: the same network, bounds, minibatches, passes and rules for momentum and
multipliers. Every design has both step lengths, and the table shows both.
"""
CAPTION = """\
worst: the lowest recall of a class, or the largest gap, at an owner; missed: bounds that do not hold by count, of all;
accuracy: of all training rows, of all test rows; s: of CPU time. momentum: at the server. block-admm asks half of the
owners a round, in twice the rounds. alpha of FedDyn and rho of ADMM are 1 / (step length x local steps): the local
problem is as curved as the local steps can follow.
"""
COLUMNS = {
    "problem": cell("problem"),
    "inside": cell("method"),
    "worst": cell("worst", SHARE),
    "missed": cell("missed"),
    "accuracy, train": cell("train", SHARE),
    "accuracy, test": cell("test", SHARE),
    "s": cell("seconds", "{:.0f}".format),
}
PROBLEMS = {"fashion": "Fashion-MNIST", "adult": "Adult"}
BATCH = 64
ROUNDS_A_PASS = 5
STEP_SIZES = (0.03, 0.1)
#: Rows on which the size of the constraints' slopes is looked at.
SAMPLE = 512

Slope = Callable[[Vector], Vector]


@dataclass
class Member:
    """What an owner keeps: its multiplier, its correction (control variate or dual) and its latest point."""

    share: Share
    multiplier: Multiplier
    correction: Vector
    latest: Vector


@dataclass
class Design:
    """FedAvg: local steps as they are, the mean at the server. Others change one or the other."""

    name: ClassVar[str] = "fedavg"
    inertia: ClassVar[float] = 0.0
    asked: ClassVar[float] = 1.0
    step: float
    steps: int
    w: Vector
    momentum: float = field(init=False, default=0.0)
    velocity: Vector = field(init=False)
    memory: Vector = field(init=False)

    def __post_init__(self) -> None:
        self.velocity = np.zeros_like(self.w)
        self.memory = np.zeros_like(self.w)

    @property
    def stiffness(self) -> float:
        """alpha of FedDyn, rho of ADMM."""
        return 1 / (self.step * self.steps)

    def correct(self, member: Member, y: Vector) -> Vector:
        """What is added to a slope at y."""
        return np.zeros_like(y)

    def keep(self, member: Member, y: Vector) -> None:
        """After the local steps, which ended at y."""
        member.latest = y

    def gather(self, asked: Sequence[Member], everyone: Sequence[Member]) -> None:
        moved = np.mean([member.latest for member in asked], axis=0) - self.w
        self.velocity = self.momentum * self.velocity + moved
        self.w = self.w + self.velocity


class WithMomentum(Design):
    name = "fedavg-momentum"
    inertia = MOMENTUM


class Scaffold(Design):
    """Control variates v_i of the owners, v of the server in `memory` (Karimireddy et al. 2020, option II)."""

    name = "scaffold"

    def correct(self, member: Member, y: Vector) -> Vector:
        return self.memory - member.correction

    def keep(self, member: Member, y: Vector) -> None:
        member.correction = member.correction - self.memory + (self.w - y) / (self.step * self.steps)
        member.latest = y

    def gather(self, asked: Sequence[Member], everyone: Sequence[Member]) -> None:
        super().gather(asked, everyone)
        self.memory = np.mean([member.correction for member in everyone], axis=0)


class ScaffoldWithMomentum(Scaffold):
    name = "scaffold-momentum"
    inertia = MOMENTUM


class Duals(Design):
    """min f_i(y) + <lambda_i, y> + rho |y - w|^2 / 2, then lambda_i <- lambda_i + rho (y - w): `correction`."""

    def correct(self, member: Member, y: Vector) -> Vector:
        return self.stiffness * (y - self.w) + member.correction

    def keep(self, member: Member, y: Vector) -> None:
        member.correction = member.correction + self.stiffness * (y - self.w)
        member.latest = y


class FedDyn(Duals):
    """The mean of those asked, moved by the mean of all duals, kept in `memory` (Acar et al. 2021)."""

    name = "feddyn"

    def gather(self, asked: Sequence[Member], everyone: Sequence[Member]) -> None:
        mean = np.mean([member.latest for member in asked], axis=0)
        self.memory = self.memory + self.stiffness * (mean - self.w) * len(asked) / len(everyone)
        self.w = mean + self.memory / self.stiffness


class BlockADMM(Duals):
    """Consensus ADMM that asks a random block: the server's mean is over the latest points of all."""

    name = "block-admm"
    asked = 0.5

    def gather(self, asked: Sequence[Member], everyone: Sequence[Member]) -> None:
        self.w = np.mean([member.latest + member.correction / self.stiffness for member in everyone], axis=0)


DESIGNS: tuple[type[Design], ...] = (Design, WithMomentum, Scaffold, ScaffoldWithMomentum, FedDyn, BlockADMM)


def train(setting: Setting, inside: type[Design], longest: float, passes: int, seed: int) -> Vector:
    """w after so many passes of all owners, by the rules of stochastic-al for steps, momentum and multipliers."""
    problem = setting.problem(bounded=True)
    w = problem.start(None)
    members = []
    for share in problem.shares:
        assert share.constraint is not None
        none = np.zeros(share.constraint.cone.dim)
        members.append(Member(share, Multiplier(none, none), np.zeros_like(w), w))
    rng = np.random.default_rng(seed)
    steps = max(1, round(setting.rows / len(members) / BATCH / ROUNDS_A_PASS))
    rounds = round(ROUNDS_A_PASS * passes / inside.asked)
    design = inside(longest, steps, w)
    block = round(inside.asked * len(members))
    for k in range(rounds):
        decay = min(1.0, (1 - k / rounds) / (1 - STEADY))
        if k % max(1, rounds // 10) == 0:
            reach = sum(reach_of(member.share, design.w, rng) for member in members)
        design.step = decay * longest
        design.momentum = decay * inside.inertia
        travel = max(decay, SHORTEST) * longest * steps / (1 - design.momentum)
        penalty = 0.0 if k < LOSS_FIRST * rounds else THETA / (travel * reach)
        asked = [members[i] for i in sorted(rng.choice(len(members), block, replace=False))]
        for member in asked:
            assert member.share.constraint is not None
            change = penalty * member.share.constraint.function.value(design.w)
            member.multiplier = member.multiplier.move(member.share.constraint.cone, change, 1 - design.momentum)
            y = design.w
            for _ in range(steps):
                y = y - design.step * (draw(member, len(members), rng)(y) + design.correct(member, y))
            design.keep(member, y)
        design.gather(asked, members)
    return design.w


def reach_of(share: Share, w: Vector, rng: np.random.Generator) -> float:
    assert share.constraint is not None
    return square_rows(sample(share.constraint.function, SAMPLE, rng).jacobian(w))


def draw(member: Member, holders: int, rng: np.random.Generator) -> Slope:
    """The slope of `holders` times the owner's Lagrangian over one minibatch."""
    share = member.share
    assert share.objective is not None
    assert share.constraint is not None
    objective = sample(share.objective, BATCH, rng)
    rates = sample(share.constraint.function, BATCH, rng)
    weights = member.multiplier.weights
    if not np.any(weights):
        return lambda y: np.asarray(holders * objective.gradient(y))
    return lambda y: np.asarray(holders * (objective.gradient(y) + rates.pull_back(y, weights)))


def sample(function: Any, size: int, rng: np.random.Generator) -> Any:
    return function.batch(rng.choice(function.rows, min(size, function.rows), replace=False))


def designs_rows(name: str, chosen: Sequence[str], passes: int, output: Output) -> Iterator[Row]:
    setting = fashion(output.folder) if name == "fashion" else adult(output.folder, (64, 32))
    for inside in DESIGNS:
        if inside.name not in chosen:
            continue
        for step in STEP_SIZES:
            begun = time.process_time()
            with np.errstate(over="ignore", invalid="ignore"):
                w = train(setting, inside, step, passes, output.seed)
            about: dict[str, Any] = {
                "method": f"{inside.name}, steps of {step:g}",
                "seconds": time.process_time() - begun,
            }
            if np.all(np.isfinite(w)):
                yield setting.judge(w, status="", **about)
            else:
                yield Row(name, len(setting.owners), status="", missed="left for infinity", **about)


@click.command()
@click.option("--problem", type=click.Choice(list(PROBLEMS)), default="fashion", show_default=True)
@among("--designs", [inside.name for inside in DESIGNS])
@click.option("--passes", type=COUNT, default=10, show_default=True, help="Over all rows, of every design.")
@printing(Row, PAGE, DATA)
def designs(problem: str, designs: Sequence[str], passes: int, output: Output) -> None:
    """What may stand inside the augmented Lagrangian of a network: FedAvg, SCAFFOLD, FedDyn, ADMM in blocks.

    \b
    fedpact bench designs --data DIR --page designs.md
    fedpact bench designs --data DIR --problem adult --designs feddyn
    """
    import torch

    torch.set_num_threads(1)
    rows = designs_rows(problem, designs, passes, output)
    table = Table(rows, COLUMNS, CAPTION, text=("inside", "missed"), title=PROBLEMS[problem])
    output.report(table, title=TITLE, introduction=INTRODUCTION)
