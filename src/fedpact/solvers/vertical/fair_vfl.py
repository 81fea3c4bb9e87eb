"""Fair VFL: gradient coordinate descent-ascent (Liu, Zhou, Shi, Pei, Chu, Zhang: Algorithms 1 and 2).

    party k, at least once and at most Q times between two messages of the coordinator, with the scores of the others
    as they were:                theta_k <- theta_k - (1 / eta) grad_k f(theta, lambda)                     (8), (11)
    coordinator, with the scores it has:  lambda <- [lambda + beta (D - eps - c lambda, -D - eps - c lambda)]_+   (9)

f = L + sum_j (lambda_j1 - lambda_j2) D_j. The scores come first and the ascent uses them, as in (9); Algorithm 2 prints
it the other way round. beta is a step here, as in (9) and (12); (25) has its inverse.

Two forms. In rounds, as the paper has it: the server hears every party, each of which did what it managed, at least one
update and at most Q (Assumption 1: "asynchronous" there). And any-party, ours (any_party.py): the server goes on
whenever anybody has answered.

Notation
    eta  inverse step of the parties    eta            Q  local updates             local_updates
    beta step of the ascent             dual_step      c  strong concavity          dual_regularization

The party's half is fair_vfl_party.py, what the coordinator knows descent.py, and the lengths of steps pace.py.

FedBCD (Liu, Kang, Zhang, Li, Cheng, Chen, Hong, Yang 2019) is the same without the constraint: the gap is neither
looked at nor bounded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from fedpact.errors import OptionError
from fedpact.problem import VerticalProblem
from fedpact.solvers.base import Needs, option
from fedpact.solvers.run import Iterate, Run
from fedpact.solvers.vertical import any_party
from fedpact.solvers.vertical.descent import ALL, Descent, Known
from fedpact.solvers.vertical.fair_vfl_party import Begin, Begun, Work, begin, update
from fedpact.solvers.vertical.pace import Pace, Theory, default_dual_step
from fedpact.solvers.vertical.shared import Reached, VerticalSolver, theta_at

#: Q where a party is given seconds and no number: Assumption 1 needs one.
MOST = 100
#: Theorem 1 is for parties with more columns than this.
FEW = 2
SHOWN = (
    "{}: Theorem 1 of Liu et al., that a party's messages fit infinitely many tables, is for parties with more than "
    f"{FEW} columns"
)
TIMED = "{}: does as many updates as it manages in local_seconds, so another run is not the same bit for bit"


@dataclass(frozen=True, kw_only=True)
class CoordinateDescent(VerticalSolver[Descent]):
    """What Fair VFL and FedBCD share: all parties update at once, up to Q times between two messages.

    A party with `local_seconds` does as many updates as it manages in that time, at least one; then no two runs are
    alike, and only a resumed one repeats what is on record.
    """

    needs: ClassVar[Needs] = Needs(columns=True, private=True, loss_bounds=True)
    patience: ClassVar[int] = 3000
    doubt: ClassVar[int] = 3000
    progress: ClassVar[float] = 0.9

    eta: float | None = option(None, "inverse step, fixed when given; by default adapted", letter="eta", above=0)
    local_updates: int | Mapping[str, int] | None = option(
        None,
        f"of a party between two messages, at most; one number, or party -> number; by default 1, or {MOST} where "
        "local_seconds are given",
        letter="Q",
        least=1,
        by_owner=True,
    )
    local_seconds: float | Mapping[str, float] | None = option(
        None,
        "that a party has for them, or party -> seconds; it does at least one. Runs then differ",
        above=0,
        by_owner=True,
    )

    def check(self, run: Run) -> None:
        for name in ("local_updates", "local_seconds"):
            given = getattr(self, name)
            if isinstance(given, Mapping):
                _check_names(name, given, run.problem.names)

    def work(self, party: str) -> Work:
        """How much a party does between two messages."""
        seconds = _of(self.local_seconds, party)
        updates = _of(self.local_updates, party)
        if updates is None:
            updates = 1 if seconds is None else MOST
        return Work(int(updates), seconds or 0.0)

    @property
    def own_work(self) -> Work:
        """How often the coordinator updates its intercept in a round."""
        if isinstance(self.local_updates, Mapping):
            return Work()
        return Work(self.local_updates or 1)

    def pace(self, problem: VerticalProblem, parties: Begun, own: Begun, holders: int) -> Pace:
        """The steps; without a constraint nothing ascends."""
        gaps = len(problem.gap_names)
        beta = default_dual_step(problem.scored)
        return Pace(self.eta or 0.0, beta, 0.0, None, adaptive=True, damping=np.ones(gaps), sense=np.zeros(gaps))

    def begin(self, run: Run, answering: Sequence[str], own_work: Work, noise: float = 0.0) -> Descent:
        """One exchange: labels and groups go down, the sizes of the columns come up.

        answering: whose scores are known by themselves: every party, or `ALL` together
        """
        problem: Any = run.problem
        scored = problem.scored
        work = {party: asdict(self.work(party)) for party in run.owners}
        work[problem.server.name] = asdict(own_work)
        order = Begin(loss=scored.loss, y=scored.y, rows=scored.rows, work=json.dumps(work))
        begun = run.ask(begin, order)
        place, mine = begin(problem.server, None, order)
        few = [party.name for party in problem.shares if party.width <= FEW]
        if few:
            run.note(SHOWN.format(", ".join(few)))
        timed = [party for party in run.owners if self.work(party).seconds]
        if timed:
            run.note(TIMED.format(", ".join(timed)))
        holders = len(run.owners) + int(problem.intercept)
        zero = Known(np.zeros(scored.length), 0.0, 0)
        return Descent(
            problem,
            self.pace(problem, begun.total, mine, holders),
            share=problem.server,
            place=place,
            noise=noise,
            holders=holders,
            known=dict.fromkeys((*answering, problem.server.name), zero),
            prices=np.zeros((2, len(problem.gap_names))),
        )

    def init(self, run: Run) -> tuple[Descent, Iterate]:
        state = self.begin(run, [ALL], self.own_work)
        return state, self.step(run, state)  # every round judges the point before it: the first one the start

    def step(self, run: Run, state: Descent) -> Iterate:
        """In rounds: all parties update at once, and the point before is judged."""
        # 1. Algorithm 2, lines 4, 2 and 3: the scores of the last round, unless f rose; then the prices
        self._absorb(state)
        if not state.back:
            state.ascend()
        before = state.lagrangian(state.net)

        # 2. lines 5 and 4: scores and prices go down, every party's updates come back
        order = state.order(ALL, state.z)
        if not before < state.highest:
            return state.iterate(run, eta=order.eta)
        replies = run.ask(update, order)
        mine = state.update(order)
        state.before = (replies.total, mine, order, before)
        iterate = state.iterate(run, [mine.stationarity, replies.total.stationarity])
        state.k += 1
        return iterate

    def _absorb(self, state: Descent) -> None:
        """What the parties did in the last round counts, unless f rose."""
        if state.before is None:
            return
        theirs, mine, order, before = state.before
        state.before = None
        known = dict(state.known)
        state.learn_where(ALL, theirs, order)
        state.learn_where(state.share.name, mine, order)
        fall = before - state.lagrangian(state.net)
        if state.pace.learns:
            state.pace.learn(fall, theirs.predicted + mine.predicted, least=0.0)
        state.back = state.pace.learns and not fall >= 0
        if state.back:
            state.known = known

    def reached(self, run: Run, state: Descent) -> Reached:
        answering = [name for name in state.known if name != state.share.name]
        numbers = [state.known[name].number for name in answering]
        own = theta_at(state.place, state.known[state.share.name].number, state.share.size)
        return Reached(numbers, state.z, state.net, own)


@dataclass(frozen=True, kw_only=True)
class FedBCD(CoordinateDescent):
    """Parallel block coordinate descent with local updates; for problems without a constraint."""

    name: ClassVar[str] = "fedbcd"

    def check(self, run: Run) -> None:
        super().check(run)
        problem: Any = run.problem
        if problem.gap_names:
            remedy = 'leave group and max_gap out, or use "fair-vfl"'
            raise OptionError(f'"fedbcd" has no constraint: {remedy}', code="FP-OPTION-254")


@dataclass(frozen=True, kw_only=True)
class FairVFL(CoordinateDescent):
    """Algorithms 1 and 2 of Liu et al.: descent of the parties, ascent of the prices.

    By default in the paper's form: in rounds, each party doing what it manages of its local work. With
    asynchronous=True in ours, any-party: the coordinator takes a step whenever any party has answered, with the last
    scores of the others. Parties then answer one by one, so their scores are not hidden from the coordinator.
    """

    name: ClassVar[str] = "fair-vfl"

    dual_step: float | None = option(
        None,
        "of the ascent, fixed when given (the paper has 0.1); by default from the smallest group and the loss, adapted",
        letter="beta",
        above=0,
    )
    dual_regularization: float = option(
        0.0, "strong concavity, 1e-3 in the paper; none by default, as it moves the answer", letter="c", least=0
    )
    schedule: str = option("constant", "theory: c_t and eta_t of Theorem 2", choices=("constant", "theory"))
    asynchronous: bool = option(False, "the any-party form: take a step whenever any party has answered")
    noise: float = option(
        0.0, "deviation of the Gaussian noise that every party adds to every score it sends; runs then differ", least=0
    )

    @property
    def one_by_one(self) -> bool:
        return self.asynchronous

    def check(self, run: Run) -> None:
        super().check(run)
        problem: Any = run.problem
        if self.schedule == "theory" and problem.scored.loss == "poisson":
            raise OptionError(
                'schedule = "theory" needs a bound on the curvature of the loss, which "poisson" has not; leave it out',
                code="FP-OPTION-266",
            )

    def pace(self, problem: VerticalProblem, parties: Begun, own: Begun, holders: int) -> Pace:
        pace = super().pace(problem, parties, own, holders)
        pace.concavity = self.dual_regularization
        if self.dual_step is not None:
            pace.dual_step = self.dual_step
            pace.adaptive = False
        if self.schedule == "theory":
            most = max(self.work(party).updates for party in problem.names)
            size = parties.size + own.size
            pace.theory = Theory.of(problem.scored, pace.dual_step, size, parties.curvature, holders * most)
            pace.adaptive = False
        return pace

    def init(self, run: Run) -> tuple[Descent, Iterate]:
        if self.asynchronous:
            state = self.begin(run, run.owners, Work(), self.noise)
            return state, state.iterate(run)
        state = self.begin(run, [ALL], self.own_work, self.noise)
        return state, self.step(run, state)

    def step(self, run: Run, state: Descent) -> Iterate:
        if self.asynchronous:
            return any_party.take_step(run, state, self.reserve)
        return super().step(run, state)


def _of(given: Any, party: str) -> Any:
    """An option's value for this party: one for all, or one by name."""
    if isinstance(given, Mapping):
        return given.get(party)
    return given


def _check_names(option: str, given: Mapping[str, Any], parties: Sequence[str]) -> None:
    for name in given:
        if name not in parties:
            raise OptionError(
                f"{option}: no party is called {name!r}; they are {', '.join(map(repr, parties))}",
                code="FP-OPTION-265",
            )
