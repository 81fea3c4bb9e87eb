"""Standard errors of a vertical model: from the weights of the features to every party's own coefficients.

The equations that a solution and its prices solve (solvers/inference.py) see the columns through the scores alone, and
X_1 theta_1 + X_2 theta_2 + ... = F beta with theta_k = B_k beta, B_k = D_k^-1/2 V_k (vertical_exact.py). So the
coordinator, which has F, labels and groups, finds the covariance C of beta, of its own intercept and of the prices by
itself; and theta_k, linear in beta, has the covariance B_k C B_k'. This is the covariance that the pooled columns would
give: where they are collinear, theta has no part outside the range of B, and so no error there.

    down: C, and by how much penalty and tolerance move beta     up: by how much they move its coefficients, at most

A party learns the errors of its own coefficients, and keeps their table beside its piece of the model. C tells it more
than that: second moments of all columns, up to a rotation of those that are not its own. The coordinator learns nothing
about a party that it did not know, unless the party hands its coefficients out (`reveal`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpact.federation import Answers, Largest, Order, Reply, Session, client_step
from fedpact.problem import FederatedProblem, Party, VerticalProblem
from fedpact.solvers.inference import SERVER, Inference, infer, note_sizes, relative_size
from fedpact.solvers.vertical.shared import theta_at
from fedpact.solvers.vertical.vertical_exact_party import Shaded, basis_of
from fedpact.statistics import Summary, estimates
from fedpact.types import Matrix, Vector

#: The one owner of the features.
EVERYONE = "all people"
#: Level of the intervals in a party's own table.
LEVEL = 0.95
COLLINEAR = (
    "the columns of all parties together are collinear ({} of {} directions are told apart): only the penalty tells "
    "the coefficients of such columns from each other"
)

# ---------------------------------------------------------------------------------------------------- the party's half


@dataclass(frozen=True, kw_only=True)
class Spread(Order):
    """What a party needs for the errors of its coefficients after the order `number`.

    covariance: C, of the weights of each score, one block below the other
    shift:      by how much penalty and tolerance move these weights
    kind:       where the errors come from; degrees: of freedom of Student's t, 0: normal
    """

    number: int
    mix: Matrix
    covariance: Matrix
    shift: Matrix
    kind: str
    degrees: float


@dataclass(frozen=True, kw_only=True)
class Kept(Reply):
    """The largest move of a party's coefficients in standard errors: by the penalty, and within the tolerance."""

    by_penalty: Largest[float]
    by_tolerance: Largest[float]


@dataclass(frozen=True, kw_only=True)
class Told(Kept):
    """... and their standard errors."""

    errors: Vector


@client_step
def keep_errors(share: Party, state: Shaded, order: Spread) -> tuple[Shaded, Kept]:
    """The party finds the errors of its coefficients, and writes their table to its own file, if it has one."""
    state, told = tell_errors(share, state, order)
    return state, Kept(by_penalty=told.by_penalty, by_tolerance=told.by_tolerance)


@client_step
def tell_errors(share: Party, state: Shaded, order: Spread) -> tuple[Shaded, Told]:
    """The same, and it hands its errors out."""
    basis = basis_of(share, state, order.mix)
    rank = basis.shape[1]
    blocks = order.covariance.reshape(share.outputs, rank, rank)
    variances = np.einsum("jr,ors,js->oj", basis, blocks, basis).ravel()
    errors = np.sqrt(np.maximum(variances, 0.0))
    moved = np.einsum("jr,orm->ojm", basis, order.shift.reshape(share.outputs, rank, 2)).reshape(-1, 2)
    theta = theta_at(state, order.number, share.size)
    share.keep_table(tabulate(share, theta, errors, order).to_csv(), order.run)
    return state, Told(
        by_penalty=relative_size(moved[:, 0], errors),
        by_tolerance=relative_size(moved[:, 1], errors),
        errors=errors,
    )


def tabulate(share: Party, theta: Vector, errors: Vector, order: Spread) -> Summary:
    """The party's own table, in the units of its columns."""
    scale = np.ones(share.width)
    if share.scale.size:
        scale = share.scale
    units = np.tile(scale, share.outputs)
    degrees = order.degrees or math.inf
    found = estimates(share.names, theta / units, np.diag((errors / units) ** 2), LEVEL, degrees)
    return Summary(found, (), order.kind, LEVEL)


# ---------------------------------------------------------------------------------------------- the coordinator's half


def infer_weights(posed: FederatedProblem, w: Vector, multiplier: Vector, covariance: str) -> Inference:
    """Standard errors of the weights of the features and of the prices, in this process.

    The constraint moves to the owner of the rows: it is about the same people as the objective, and varies with it.
    """
    whole = replace(posed.shares[0], constraint=posed.server.constraint, name=EVERYONE)
    prices = {SERVER: np.zeros(0), EVERYONE: multiplier}
    with Session(secure_sum=False) as session:
        session.open({EVERYONE: whole})
        found = infer(
            session, w, prices,
            coupled=np.zeros(0), server=None, regularizer=posed.regularizer, covariance=covariance,
        )  # fmt: skip
    return found.refuse_unsettled()


def spread_of(found: Inference, mix: Matrix, outputs: int, number: int) -> Spread:
    """What the parties are told of the errors of the weights."""
    assert found.covariance is not None
    assert found.shift is not None
    rank = mix.shape[1]
    starts = _starts(found, outputs)
    blocks = [found.covariance[at : at + rank, at : at + rank] for at in starts]
    degrees = found.degrees if math.isfinite(found.degrees) else 0.0
    return Spread(
        number=number,
        mix=mix,
        covariance=np.vstack(blocks),
        shift=np.vstack([found.shift[at : at + rank] for at in starts]),
        kind=found.kind,
        degrees=degrees,
    )


def gather_errors(
    found: Inference, problem: VerticalProblem, w: Vector, mix: Matrix, replies: Answers[Any] | None = None
) -> Inference:
    """What the coordinator knows in the end: of its intercept and the prices, and where they were told of all of w.

    found: of the weights; w: the model; replies: of the parties; None: there were no errors to be shared
    How coefficients of two parties vary together is known to nobody, and left out.
    """
    rank = mix.shape[1]
    own = [at + rank for at in _starts(found, problem.scored.outputs) if problem.intercept]
    revealed = bool(np.isfinite(w).all())
    notes = found.notes
    width: int = sum(party.width for party in problem.shares)
    if rank < width:
        notes = (*notes, COLLINEAR.format(rank, width))
    known = replace(
        found,
        w=w if revealed else found.w[own],
        binding=tuple((SERVER, row) for _, row in found.binding),
        covariance=None,
        notes=notes,
        shift=None,
        doubts=None,
    )
    if found.covariance is None or found.shift is None or replies is None:
        return known
    places = [*own, *range(found.w.size, len(found.covariance))]
    covariance = found.covariance[np.ix_(places, places)]
    errors = np.sqrt(np.diag(covariance))
    penalty = max(replies.total.by_penalty, relative_size(found.shift[own, 0], errors[: len(own)]))
    tolerance = max(replies.total.by_tolerance, relative_size(found.shift[places, 1], errors))
    known = replace(known, covariance=covariance, notes=(*notes, *note_sizes(penalty, tolerance)))
    if not revealed:
        return known
    every = problem.join([*(reply.errors for reply in replies), errors[: len(own)]])
    whole = np.diag(np.append(every, np.zeros(found.prices.size)) ** 2)
    at_coordinator = problem.join([*(np.zeros(reply.errors.size) for reply in replies), np.ones(len(own))])
    places = [*np.flatnonzero(at_coordinator), *range(every.size, len(whole))]
    whole[np.ix_(places, places)] = covariance
    return replace(known, covariance=whole)


def _starts(found: Inference, outputs: int) -> list[int]:
    """Where the weights of each score begin among the coefficients of the features and of the intercept."""
    each = found.w.size // outputs
    return [score * each for score in range(outputs)]
