"""From a task to a certified model: agree on scales, solve, and let the owners measure it on their rows.

The one door behind estimators, jobs and the Flower app: everything happens in one session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedpact.errors import OptionError, OwnerLost, Refused
from fedpact.federation import Session
from fedpact.fitting.agreement import Finished, Measured, agree_on_scaling, hide_sums, measure
from fedpact.fitting.bootstrap import bootstrap
from fedpact.fitting.calibration import calibrate
from fedpact.fitting.curves import draw_scores
from fedpact.fitting.evidence import Evidence
from fedpact.fitting.inference import list_undetermined
from fedpact.fitting.result import Fit
from fedpact.fitting.separation import name_separation
from fedpact.fitting.sharpening import Path as DecisionPath
from fedpact.fitting.sharpening import agree_on_cells, measure_spread, measure_together
from fedpact.fitting.sources import Held, digests_of, source_of
from fedpact.fitting.trade_off import COARSER, bounds_owners
from fedpact.fitting.trade_off import trade_off as price_bounds
from fedpact.fitting.weights import agree_on_weights
from fedpact.problem import Measure, RemoteProblem, Share
from fedpact.solve import solve
from fedpact.solvers import COVARIANCES, METHODS, Inference, Progress, Solution, Solver, infer, steps_of
from fedpact.statistics import BoundPrice
from fedpact.tasks import Classification, Regression, Rows, TableTask, Task, Vertical
from fedpact.tasks.base import SERVER
from fedpact.tasks.requirements import check_holder
from fedpact.types import Vector

#: Exchanges of one solve on the way to a model of decisions, where the caller states no limit.
ON_THE_WAY = 150
#: What goes on where "auto" stalls on smoothed rates: its exchanges cost as much each. The owners of other methods
#: solve problems of their own, which are not convex then: minutes of CPU for the 150 exchanges of a federation of five.
ON_RATES = "newton-al"
#: What "auto" is for networks: minibatches, and rates that are counted.
NETWORKS = "stochastic-al"
#: Where standard errors may come from.
INFERENCES = ("none", *COVARIANCES, "bootstrap")
#: What everyone tells about a model, by owner and measure.
Measures = dict[str, dict[str, float]]


def fit(
    task: Task,
    owners: Mapping[str, Held],
    session: Session | None = None,
    *,
    server: Held = None,
    compare: bool = False,
    curves: bool = False,
    trade_off: bool = False,
    inference: str = "none",
    method: str | Solver[Any] = "auto",
    tol: float | tuple[float, float] = 1e-3,
    max_rounds: int | None = None,
    seed: int = 0,
    callbacks: Iterable[Callable[[Progress], Any]] = (),
    **options: Any,
) -> Fit:
    """Train the task's model with these owners, in one session.

    owners:  name -> its rows (`fedpact.tasks.Rows`), its file, or None for a site that has its own
    session: where and how; by default in this process. One that is given stays open
    server:  the coordinator's own table, where the task has a use for it
    compare: train without the constraints too, and measure that model
    curves:  count the scores of a classifier for two classes by bins: one more exchange
    trade_off: train for other bounds around the asked ones too (`fedpact.fitting.trade_off`): at most 60 more
    inference: standard errors of coefficients and prices, by one more exchange: "sandwich", "hc0", "model" or
             "clustered" (`fedpact.solvers.inference` says what each assumes); "bootstrap", by a hundred more solves;
             or "none". `Fit.summary` is their table
    method, tol, max_rounds, seed, callbacks, options: of `fp.solve`, for every solve

    Ctrl-C, or an owner that stays away, ends the fit with the best model so far and the status `interrupted` or
    `client_lost`; before the constrained solve has begun there is none, and KeyboardInterrupt or OwnerLost is raised.
    Raises OptionError, DataError, OwnerError or CheckpointError for misuse; not converging is a status.
    """
    asked = task.among(tuple(owners))
    if isinstance(asked, Classification):
        for one in asked.constraints:
            check_holder(one, server)
    solving = {"method": method, "tol": tol, "max_rounds": max_rounds, "seed": seed, **options}
    _check_inference(asked, inference)
    as_features = any(isinstance(held, Rows) for held in owners.values())  # these columns are encoded already
    if inference != "none" and isinstance(asked, TableTask) and not as_features:
        asked = asked.with_references()
    _check_trade_off(asked, trade_off)
    kind = fitting_of(asked)
    extras = Extras(compare, curves, trade_off)
    if session is not None:
        return kind(session, owners, server, solving, callbacks, inference).run(asked, extras)
    with Session() as made:
        return kind(made, owners, server, solving, callbacks, inference).run(asked, extras)


def _check_inference(task: Task, stated: str) -> None:
    """Raise OptionError for an unknown kind of standard errors, or for a task without coefficients of columns."""
    if stated not in INFERENCES:
        raise OptionError(
            f"inference = {stated!r} is unknown; choose {', '.join(INFERENCES)}",
            code="FP-OPTION-992",
            key="inference",
        )
    if stated != "none" and not isinstance(task, Vertical) and not (isinstance(task, TableTask) and task.comparable):
        raise OptionError(
            f"task {task.name!r} has no standard errors; leave inference out", code="FP-OPTION-993", key="inference"
        )
    if stated != "none" and task.is_network:
        raise OptionError(
            "a network has no coefficients of columns, and so no standard errors; leave inference out",
            code="FP-OPTION-908",
            key="inference",
        )
    if stated == "bootstrap" and not isinstance(task, Regression | Classification):
        raise OptionError(
            f"task {task.name!r} has no rows to draw weights of; leave inference out",
            code="FP-OPTION-995",
            key="inference",
        )


def _check_trade_off(task: Task, asked: bool) -> None:
    """Raise OptionError for a network, which takes a training, and not a few exchanges, for every other bound."""
    if asked and task.is_network:
        raise OptionError(
            "a trade-off would train the network anew for every bound; leave trade_off out, and run jobs with other "
            "bounds",
            code="FP-OPTION-909",
            key="trade_off",
        )


def fitting_of(task: Task) -> type[Fitting]:
    """How models of this task are fitted: owners hold rows, or columns."""
    from fedpact.fitting.vertical import PartyFitting  # a Fitting itself

    return PartyFitting if isinstance(task, Vertical) else Fitting


@dataclass(frozen=True)
class Extras:
    """What a fit finds out besides its model: the model without constraints, its curves, its trade-off."""

    compare: bool = False
    curves: bool = False
    trade_off: bool = False


class Fitting:
    """One fit under way.

    solving: of `fp.solve`, for every solve
    """

    def __init__(
        self,
        session: Session,
        owners: Mapping[str, Held],
        server: Held,
        solving: Mapping[str, Any],
        callbacks: Iterable[Callable[[Progress], Any]],
        inference: str = "none",
    ) -> None:
        self.session = session
        self._inference = inference
        self._sources = {name: source_of(name, held) for name, held in owners.items()}
        self._server = source_of(SERVER, server)
        self._solving = solving
        self._callbacks = tuple(callbacks)
        self._solves = 0
        self._free = np.zeros(0)  # the model without constraints, if there is one

    def run(self, task: Task, extras: Extras) -> Fit:
        """Agree on scales, solve without constraints where that is needed, then with them."""
        self.session.open(self._sources, self._identify(task, extras))
        self._require_method()
        begun = self.session.ledger.read()
        task = self._agree(task)
        before: Measures = {}
        start: Vector | None = None
        sharpened = isinstance(task, Classification) and task.sharpened
        if (sharpened and not task.is_network) or (extras.compare and task.comparable):
            before, start = self._fit_freely(task)
        if task.is_network:
            start = None  # it starts where its seed says, whatever it is compared with
        if isinstance(task, Classification) and sharpened:
            found = self._decide(task, start, before)
        else:
            found = self._fit(task, start, before)
        if isinstance(task, Classification) and task.calibrate and found.has_model:
            found = self._calibrate(found)
        # Columns that separate have no standard error, and a note says so; the others keep theirs.
        if self._inference != "none" and found.solution.status in ("solved", "unbounded"):
            found = self._infer(found)
        if self.session.signers and found.values:  # all of them answered to the end
            found = self._attest(found)
        if isinstance(task, Classification | Regression) and found.has_model:
            found = self._look_around(found, extras)
        if found.has_model and found.unproven and found.missed == 0:
            found = found.stopped("unproven", found.shortfall)
        return replace(
            found,
            communication=self.session.ledger.read(since=begun),
            trials=self._solves,
            tables=digests_of(self._sources.values()),
        )

    def _identify(self, task: Task, extras: Extras) -> dict[str, Any]:
        """What a resumed run must find unchanged; owners compare their data themselves."""
        method = self._solving["method"]
        if isinstance(method, Solver):
            method = {"name": method.name, **asdict(method)}
        server = None if self._server is None else self._server.digest()
        found = {**task.identity(), "server": server, **asdict(extras), **self._solving, "method": method}
        if self._inference != "none":
            found["inference"] = self._inference
        return found

    def _require_method(self) -> None:
        """OptionError when an owner lacks the method; "auto" chooses one later, and is checked then."""
        method = self._solving["method"]
        kind = METHODS.get(method) if isinstance(method, str) else type(method)
        if kind is not None:
            self.session.require(kind.name, steps_of(kind))

    def _agree(self, task: Task) -> Task:
        """The task with the scaling of its columns and the rows of all owners, where it asks for them."""
        hide_sums(self.session)
        task = agree_on_weights(self.session, task)
        if isinstance(task, TableTask) and task.needs_scaling:
            self.session.pose(task)
            task = task.scaled(agree_on_scaling(self.session, task.encoding, task.standardize))
        if isinstance(task, Classification) and task.coupled:
            task = agree_on_cells(self.session, task)
        return task

    # ----------------------------------------------------------------------------------------------------------- models

    def _fit_freely(self, task: Task) -> tuple[Measures, Vector | None]:
        """The model without constraints: what everyone tells about it, and a start for the others if it is solved."""
        free = replace(task, constrained=False)
        solution = self._solve(free)
        if solution.status == "client_lost":
            raise OwnerLost(solution.reason, code="FP-LOST-461")
        if solution.status == "interrupted" or self.session.looking:
            raise KeyboardInterrupt
        told = self._measure(free, solution.w)
        self._free = solution.w
        before = {name: reply.told() for name, reply in told.items()}
        start = solution.w if solution.solved else None
        return before, start

    def _decide(self, task: Classification, start: Vector | None, before: Measures) -> Fit:
        """The model whose decisions meet the bounds, on the rows it was trained on or on those not yet seen."""

        def solve_once(sharper: Classification, at: Vector | None) -> Solution:
            # The next solve goes on from where this one ends; the paper's method needs hundreds of cheap exchanges.
            # Smoothed rates are not convex: where interior-point misses them, the method it names mostly does not.
            # Sites of other organisations say which methods they run: a hand-over they refuse would end the fit.
            limit = self._solving["max_rounds"]
            if limit is None and self._solving["method"] != "proximal-al" and not sharper.is_network:
                limit = ON_THE_WAY
            fallback: bool | str = not self.session.networked
            if fallback and sharper.width and self._solving["method"] == "auto":
                fallback = ON_RATES
            return self._solve(sharper, at, fallback=fallback, max_rounds=limit)

        path = DecisionPath(self.session, solve_once, self._server_share)
        if task.promised and task.promised_class is None:
            found = path.promise(task, start)
        else:
            found = path.sharpen(task, start)
            if task.promised and task.is_trained(found.solution.status):
                found = path.move_threshold(found)
        fitted = self._conclude(found.task, found.solution, before)
        return replace(fitted, missed=found.missed, advice=found.advice)

    def _fit(self, task: Task, start: Vector | None, before: Measures) -> Fit:
        """The model with its constraints, measured."""
        return self._conclude(task, self._solve(task, start), before)

    def _conclude(self, task: Task, solution: Solution, before: Measures) -> Fit:
        """A model, measured; one that was certified stays when the measuring fails."""
        told: dict[str, Measured] = {}
        together: dict[str, Measure] = {}
        try:
            if solution.status != "client_lost":
                told = self._measure(task, solution.w)
                if isinstance(task, Classification) and task.coupled:
                    together = measure_together(self.session, task, solution.w)
        except OwnerLost as lost:
            reason = f"{lost}; the model was judged before that ({solution.status}), and is not measured"
            solution = replace(solution, status="client_lost", reason=reason)
        except KeyboardInterrupt:
            reason = f"interrupted; the model was judged before that ({solution.status}), and is not measured"
            solution = replace(solution, status="interrupted", reason=reason)
        prices = dict(zip([SERVER, *self.session.owners], solution.multipliers, strict=True))
        found = Fit.of(task, solution, told, prices, before, self._solves)
        return replace(found, together=together)

    def _solve(self, task: Task, start: Vector | None = None, **options: Any) -> Solution:
        self._solves += 1
        server = self._server_share(task) if task.constrained else None
        problem = RemoteProblem(self._sources, server, task.regularizer(), task)
        stated = self.session.networked and self._solving["method"] != "auto"  # sites run the job's method, no other
        settings = {"fallback": not stated, **self._solving, **options}
        chosen = task.is_network and settings["method"] == "auto"
        if chosen:
            settings["method"] = NETWORKS
        if start is None:
            start = task.start(settings["seed"])
        found = solve(problem, session=self.session, w0=start, callbacks=self._callbacks, **settings)
        if chosen:
            found.history.notes.insert(0, f"auto chose {NETWORKS}: the model is a network")
        return name_separation(task, found)

    def _solve_shortly(self, task: Task, start: Vector, limit: int, **options: Any) -> Solution:
        """From a start that is nearly there, in so many exchanges at most."""
        return self._solve(task, start, fallback=False, max_rounds=limit, **options)

    def _measure(self, task: Task, w: Vector) -> dict[str, Measured]:
        """One exchange: what everyone tells about the model."""
        self.session.pose(task)
        replies = self.session.ask(measure, Finished(w=w))
        told = dict(zip(self.session.owners, replies, strict=True))
        if (server := self._server_share(task)) is not None:
            told[SERVER] = measure(server, None, Finished(w=w))[1]
        return told

    def _calibrate(self, found: Fit) -> Fit:
        """A few exchanges: probabilities from the model's scores. A certified model stays when that fails."""
        solution = found.solution
        self.session.pose(found.task)
        try:
            return replace(found, calibration=calibrate(self.session, solution.w))
        except OwnerLost as lost:
            reason = f"{lost}; the model was judged before that ({solution.status}), and is not calibrated"
            return found.stopped("client_lost", reason)
        except KeyboardInterrupt:
            reason = f"interrupted; the model was judged before that ({solution.status}), and is not calibrated"
            return found.stopped("interrupted", reason)

    def _infer(self, found: Fit) -> Fit:
        """One exchange, or many solves: standard errors. A certified model stays when that fails."""
        solution = found.solution
        try:
            inference = self._find_errors(found.task, solution)
        except OwnerLost as lost:
            reason = f"{lost}; the model was judged before that ({solution.status}), and has no standard errors"
            return found.stopped("client_lost", reason)
        except KeyboardInterrupt:
            reason = f"interrupted; the model was judged before that ({solution.status}), and has no standard errors"
            return found.stopped("interrupted", reason)
        return replace(found, inference=inference)

    def _find_errors(self, task: Task, solution: Solution) -> Inference:
        if self._inference == "bootstrap":
            assert isinstance(task, TableTask)  # `_check_inference` has seen to it
            return bootstrap(self.session, self._solve_shortly, task, solution)
        self.session.pose(task)
        return infer(
            self.session,
            solution.w,
            dict(zip((SERVER, *self.session.owners), solution.multipliers, strict=True)),
            coupled=solution.coupled_multiplier,
            server=self._server_share(task),
            regularizer=task.regularizer(),
            covariance=self._inference,
            undetermined=list_undetermined(task) if isinstance(task, TableTask) else None,
        )

    def _look_around(self, found: Fit, extras: Extras) -> Fit:
        """The curves of the model, and models for bounds around its own, as far as they can be had.

        The model is certified and signed by now: it stays when an owner is lost, or has told enough.
        """
        task = found.task
        assert isinstance(task, Classification | Regression)
        solution = found.solution
        looser = tuple(COARSER * one for one in solution.tol)

        def solve_near(other: Classification | Regression, start: Vector, limit: int) -> Solution:
            return self._solve_shortly(other, start, limit, tol=looser)

        points: list[BoundPrice] = []
        try:
            if extras.curves and isinstance(task, Classification) and len(task.classes) == 2:
                self.session.pose(task)
                scale = task.spread if task.sharpened else 1.0
                if task.is_network:
                    scale = measure_spread(self.session, task, solution.w)
                    self.session.pose(task)
                curves = draw_scores(self.session, solution.w, scale, found.calibration, log_odds=not task.sharpened)
                found = replace(found, curves=curves)
            if extras.trade_off and bounds_owners(task):
                for point in price_bounds(self.session, task, solution, solve_near):
                    points.append(point)
        except Refused as refused:
            solution.history.notes.append(f"curves and trade-off end here: {refused}")
        except OwnerLost as lost:
            return found.stopped("client_lost", f"{lost}; the model was judged before that, without its curves")
        except KeyboardInterrupt:
            return found.stopped("interrupted", "interrupted; the model was judged before that, without its curves")
        return replace(found, trade_off=tuple(sorted(points, key=lambda one: one.allowance)))

    def _attest(self, found: Fit) -> Fit:
        """One exchange: what the owners sign about the model. A certified model stays when that fails."""
        solution = found.solution
        asked = Evidence(
            run=self.session.run,
            job=self.session.fleet.charter["job"],
            task=found.task.stated(),
            w=solution.w,
            free=self._free,
            coupled=solution.coupled_multiplier,
            prices=dict(zip((SERVER, *self.session.owners), solution.multipliers, strict=True)),
        )
        try:
            return replace(found, evidence=asked.gather(self.session, self._server_share(found.task)))
        except OwnerLost as lost:
            reason = f"{lost}; the model was judged before that ({solution.status}), and is not signed"
            return found.stopped("client_lost", reason)
        except KeyboardInterrupt:
            reason = f"interrupted; the model was judged before that ({solution.status}), and is not signed"
            return found.stopped("interrupted", reason)

    def _server_share(self, task: Task) -> Share | None:
        if self._server is None:
            return task.server_share()
        share = self._server(task)
        assert isinstance(share, Share)  # the scaling is known by now
        return share
