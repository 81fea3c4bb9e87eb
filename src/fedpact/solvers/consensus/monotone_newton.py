"""Newton's method for zeros of sums of monotone operators: saddle points and games in a handful of exchanges.

For 0 in F(x) + dh(x) with F = sum_i F_i, owners send F_i and its Jacobian, of which the server needs the sums only:

    x = the zero of  F(p) + F'(p) (x - p) + mu (x - p) + dh(x)      the server, by itself
    F(x), F'(x)                                                     the owners: one exchange

The linearized problem is solved by semismooth Newton (`local/composite_quadratic.py`); F' + mu is nonsingular because
F' is monotone. Where F is linear, as in bilinear games, x is the solution up to mu, which is tiny; elsewhere the error
of the model, e = F(x) - F(p) - F'(p) (x - p), decides:

    x is the next p              when it has a smaller certificate than any p so far
    p <- x - e / mu              when |e| <= sigma mu |x - p|: the proximal point method with a relative error
    a larger mu, from this p     otherwise; it is enough when it is of the size of |F''| |x - p|

The second line comes nearer to every solution (Fejer monotone), so the certificates go to zero whichever line is taken;
close to a solution the first one is, with mu going to zero: superlinear convergence.

Sources: Josephy (1979), Newton's method for generalized equations; Solodov and Svaiter (1999), "A hybrid approximate
extragradient-proximal point algorithm" (the second line); Monteiro and Svaiter (2012), with Newton steps in it.
differs from Solodov and Svaiter: p is moved into dom(h), where certificates exist, and so nearer to every solution.

Only the sum has to be monotone. Where it is not, "ifeddr" goes on, which tells who is not.

Notation
    p        the point around which F is linearized      Server.at
    mu       damping                                      Server.damping
    sigma    relative error allowed                       ERROR
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedpact.federation import Answers, Order, Summed, client_step
from fedpact.problem import Certificate, Share
from fedpact.prox import Prox
from fedpact.solvers.base import Needs, Solver
from fedpact.solvers.consensus.pace import Departure, look_for_no_zero
from fedpact.solvers.consensus.rounds import objective_of, terms_of
from fedpact.solvers.local.base import Minimum
from fedpact.solvers.local.composite_quadratic import composite_quadratic
from fedpact.solvers.run import Iterate, Run, Verdict
from fedpact.solvers.steps import Judged, certificate_of
from fedpact.types import Matrix, Vector

#: sigma; any number below 1 will do.
ERROR = 0.9
#: A certificate below this part of the lowest so far is progress.
LESS = 0.9
#: mu is at least this part of the size of F', which costs nothing: it leaves an error of as little of the way gone ...
LEAST = 1e-10
#: ... it grows by this factor at least where the model is too far from F ...
RAISE = 10.0
#: ... and beyond this many times the size of F' it is given up: F' does not belong to F, or jumps.
MOST = 1e8
#: An eigenvalue of the symmetric part of F' below minus this part of its size is not rounding.
ROUNDING = 1e-9
#: The model is solved to this part of the tolerance.
ACCURACY = 0.01
#: The prox with this step is the projection onto dom(h), up to rounding.
PROJECTION = 1e-15
#: Iterations without a halved certificate before the distance is looked at.
DOUBT = 10

NOT_MONOTONE = "the sum of the operators is not monotone"
CHECK = "check that Jacobians belong to their operators, and scale the variables"
STUCK = f"no step reduces the certificate; {CHECK}"

# ---------------------------------------------------------------------------------------------------- the owner's half


@dataclass(frozen=True, kw_only=True)
class Linearize(Order):
    """A point; trial: one that the server tries, where nobody promised that the operators are finite."""

    w: Vector
    trial: bool


@dataclass(frozen=True, kw_only=True)
class Linearized(Judged):
    """F_i and its Jacobian at the point, which is judged too.

    usable: False where they are not finite; all else is then zero
    """

    jacobian: Summed[Matrix]
    usable: bool


@client_step
def linearize(share: Share, state: Any, order: Linearize) -> tuple[Any, Linearized]:
    """Evaluate the owner's operator, or the gradient of its function, and its Jacobian."""
    w = order.w
    function = objective_of(share)
    with np.errstate(over="ignore", invalid="ignore"):
        value, image = function.value_and_gradient(w)
        jacobian = function.hessian(w)
    finite = np.isfinite(value) and np.all(np.isfinite(image)) and np.all(np.isfinite(jacobian))
    if order.trial and not finite:
        nothing = terms_of((0.0, np.zeros_like(w)))
        return state, Linearized(**nothing, jacobian=np.zeros((w.size, w.size)), usable=False)
    return state, Linearized(**terms_of((value, image)), jacobian=jacobian, usable=True)


# --------------------------------------------------------------------------------------------------- the server's half


@dataclass(frozen=True)
class Point:
    """A point, F and F' there, and its certificate and objective."""

    w: Vector
    image: Vector
    jacobian: Matrix
    judged: tuple[Certificate, float]

    @property
    def miss(self) -> float:
        return self.judged[0].stationarity

    @property
    def size(self) -> float:
        """Of F', as a number."""
        return float(np.linalg.norm(self.jacobian) / np.sqrt(self.w.size)) or 1.0

    @property
    def monotone(self) -> bool:
        lowest = np.linalg.eigvalsh((self.jacobian + self.jacobian.T) / 2)[0]
        return bool(lowest >= -ROUNDING * np.linalg.norm(self.jacobian))


@dataclass
class Server:
    """The server's variables.

    at:      p
    lowest:  the certificate of any p so far
    pending: the next p, which has not been evaluated yet; None: at is the p of the next step
    """

    at: Point
    damping: float
    lowest: float
    departure: Departure
    pending: Vector | None = None
    k: int = 0


@dataclass(frozen=True, kw_only=True)
class MonotoneNewton(Solver[Server]):
    """Damped Newton steps on the sum of the operators; there is nothing to tune."""

    name: ClassVar[str] = "monotone-newton"
    needs: ClassVar[Needs] = Needs(operators=True, jacobians=True, matrices=True)
    reserve: ClassVar[int] = 2
    patience: ClassVar[int] = 60
    doubt: ClassVar[int] = DOUBT

    def init(self, run: Run) -> tuple[Server, Iterate]:
        """One exchange, at the start."""
        replies = run.ask(linearize, Linearize(w=run.start, trial=False))
        found = self._read(run, run.start, replies)
        state = Server(at=found, damping=LEAST * found.size, lowest=found.miss, departure=Departure(self.doubt))
        return state, self._iterate(run, state, found)

    def step(self, run: Run, state: Server) -> Iterate:
        """One exchange: at the solution of the model, or at the p that follows from the last one."""
        state.k += 1
        if state.pending is not None:
            found = self._look(run, state.pending)
            state.pending = None
            if found is not None:
                state.at = found
                return self._iterate(run, state, found)
            state.damping *= RAISE
        model = self._solve_model(run, state)
        found = self._look(run, model.w)
        if found is None:
            state.damping *= RAISE**2
        else:
            self._decide(run.problem.regularizer, state, model, found)
        return self._iterate(run, state, found or state.at)

    def fallback(self, state: Server) -> str:
        return "ifeddr"

    def excuse(self, run: Run, state: Server) -> str:
        return CHECK

    def _look(self, run: Run, w: Vector) -> Point | None:
        """One exchange; None where an owner's operator is not finite."""
        replies = run.ask(linearize, Linearize(w=w, trial=True))
        if not all(reply.usable for reply in replies):
            return None
        return self._read(run, w, replies)

    def _read(self, run: Run, w: Vector, replies: Answers[Linearized]) -> Point:
        total = replies.total
        return Point(w, total.gradient, total.jacobian, certificate_of(run.problem, w, np.zeros(0), replies))

    def _solve_model(self, run: Run, state: Server) -> Minimum:
        """The zero of F(p) + F'(p) (x - p) + mu (x - p) + dh(x)."""
        at = state.at
        matrix = at.jacobian + state.damping * np.eye(at.w.size)
        return composite_quadratic(matrix, at.image, run.problem.regularizer, at.w, ACCURACY * run.tol[0])

    def _decide(self, regularizer: Prox, state: Server, model: Minimum, found: Point) -> None:
        """Take x as the next p, or what follows from it, or a larger mu."""
        at = state.at
        way = found.w - at.w
        distance = float(np.linalg.norm(way))
        gap = found.image - at.image - at.jacobian @ way
        error = float(np.linalg.norm(gap)) + model.residual
        if found.miss <= LESS * state.lowest:
            shrunk = found.miss / state.lowest
            state.lowest = found.miss
            state.at = found
            state.damping = max(shrunk * state.damping, LEAST * found.size)
        elif error <= ERROR * state.damping * distance:
            following = found.w - gap / state.damping
            if not regularizer.contains(following):
                following = regularizer.prox(following, PROJECTION)
            state.pending = following
        else:
            # e is about L/2 |x - p|^2, and |x - p| at most |F + dh| / mu: a mu for which e would be small enough
            bend = error / max(distance, np.finfo(float).tiny) ** 2
            enough = float(np.sqrt(bend * at.miss / ERROR))
            if not np.isfinite(enough):
                enough = 0.0
            state.damping = min(max(RAISE * state.damping, enough), 2 * MOST * at.size)

    def _iterate(self, run: Run, state: Server, found: Point) -> Iterate:
        owners = len(run.owners)
        return Iterate(
            number=run.first + state.k,
            w=found.w,
            judged=found.judged,
            penalty=state.damping,
            gradients=owners,
            hessians=owners,
            end=self._end(run, state, found),
        )

    def _end(self, run: Run, state: Server, found: Point) -> Verdict | None:
        if not found.monotone:
            return Verdict("stalled", NOT_MONOTONE, then=self.fallback(state))
        if state.damping > MOST * state.at.size:
            return Verdict("stalled", STUCK, then=self.fallback(state))
        if not run.problem.monotone:
            return None
        distance = float(np.max(np.abs(found.w - run.w0)))
        size = float(np.max(np.abs(run.w0)))
        if state.departure.see(state.k, found.miss, distance, size):
            return look_for_no_zero(run, found.w, distance)
        return None
