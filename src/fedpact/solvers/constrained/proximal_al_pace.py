"""The pace of Algorithm 1 (`proximal_al.py`) and its centralized twin: beta, accuracies, and when to doubt."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedpact.problem import Certificate

#: The penalty grows by this factor
GROWTH = 5.0
#: while a part of the certificate is missed and an iteration leaves more than this of it,
FALL = 0.25
#: and by this factor in all: where constraints conflict it would grow without end.
MOST_GROWTH = 1e4
#: Outer iterations in which the constraints' part does not halve before evidence of a conflict is asked for.
CONFLICT_AFTER = 3
#: Outer iterations in which stationarity does not halve before it is asked whether the objective falls forever.
ESCAPE_AFTER = 5
#: s over the stationarity of the start, and what an iteration leaves of tau_k, where s is not given.
FIRST = 0.05
DECAY = 0.1
#: tau_k falls to no less than this part of the asked stationarity, where s is given and where it is not.
LEAST_GIVEN = 1e-3
LEAST = 0.1
#: Likewise for the gap between constraints at w and at the owners' copies: beside the change of the multipliers it is
#: what w misses the constraints by.
LEAST_GAP = 0.5


def outer_accuracy(accuracy: float, k: int, tol: tuple[float, float]) -> float:
    """tau_k = s / (k+1)^2.

    differs from He24: it stops shrinking at 1e-3 eps_1, since less cannot matter to (8) and rounding forbids it.
    """
    return max(accuracy / (k + 1) ** 2, LEAST_GIVEN * tol[0])


def default_accuracy(first: float, k: int, tol: tuple[float, float]) -> float:
    """tau_k = s 10^-k with s a part of the first stationarity.

    differs from He24's experiments, where s is the asked stationarity: while multipliers are far off, subproblems need
    not be accurate. The theory asks that the tau_k are summable.
    """
    return max(FIRST * DECAY**k * first, LEAST * tol[0])


def default_gap(first: float, k: int, tol: tuple[float, float]) -> float:
    """How far constraints at w may be from those at the owners' copies, from the feasibility of the start."""
    return max(FIRST * DECAY**k * first, LEAST_GAP * tol[1])


@dataclass
class Pace:
    """Follows the two parts of the certificate over the outer iterations: when to raise beta, and when to doubt."""

    tol: tuple[float, float]
    stationarities: list[float] = field(default_factory=list)
    changes: list[float] = field(default_factory=list)  # |mu^{k+1} - mu^k| / beta
    grown: float = 1.0
    accuracy: float = 0.0  # tau_k

    def see(self, certificate: Certificate, change: float, accuracy: float) -> None:
        """Note the parts of one outer iteration; accuracy: its tau_k."""
        self.stationarities.append(certificate.stationarity)
        self.changes.append(change)
        self.accuracy = accuracy

    def growth(self) -> float:
        """Factor for the penalty."""
        # A stationarity of about tau_k is all that was asked for.
        parts = ((self.stationarities, max(self.tol[0], 2 * self.accuracy)), (self.changes, self.tol[1]))
        slow = any(len(seen) > 1 and seen[-1] > max(tol, FALL * seen[-2]) for seen, tol in parts)
        if not slow or self.grown >= MOST_GROWTH:
            return 1.0
        self.grown *= GROWTH
        return GROWTH

    @property
    def conflict(self) -> bool:
        return _slow(self.changes, self.tol[1], CONFLICT_AFTER)

    @property
    def escape(self) -> bool:
        return _slow(self.stationarities, self.tol[0], ESCAPE_AFTER)


def _slow(seen: list[float], tol: float, window: int) -> bool:
    """Whether a part is missed and has not halved in this many iterations."""
    return len(seen) > window and seen[-1] > tol and seen[-1] > 0.5 * seen[-1 - window]
