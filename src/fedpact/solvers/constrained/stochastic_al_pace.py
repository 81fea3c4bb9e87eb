"""The pace of `stochastic_al.py`: lengths of steps, momentum, penalty, and when the certificate is looked at.

- eta = STRIDE / L, L the largest curvature of an owner's Lagrangian on a sample of its rows. That of a network follows
  the steps: the shorter they are, the sharper it gets (Cohen et al. 2021), and steps that follow the curvature shrink
  without end. So L is that of the start; on convex problems it is looked at again on the way. eta is constant for half
  of the rounds and then falls to zero linearly, and with it noise and drift.
- The loss comes first: a network learns without its bounds for LOSS_FIRST of the rounds. Before that its scores are
  small, and to give all rows one class meets any gap.
- beta is such that one round would undo a part THETA of a violation, were the c_i linear: in a round w goes eta tau /
  (1 - momentum) times the gradient, its travel, and c_i changes by |J_i|^2 times that. As the steps of networks shrink
  beta grows, so that counted bounds are met to the last row; on convex problems it falls with eta, and multipliers
  settle.
- momentum falls with eta. While it is large, w answers to multipliers for ten rounds, and the rates of all owners swing
  together; multipliers that move by r = 1 - momentum of what the weights z answer do not feed that.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Local steps are of this length over L. Corrected ones are gradient steps, for which 1 is safe.
STRIDE = 1.5
CORRECTED_STRIDE = 1.0
#: Part of a violation that one round of steps is to undo, were all constraints violated and pulling the same way.
#: Corrected steps need the caution; those of networks, with fewer rounds than multipliers have to learn, do not.
CORRECTED_THETA = 0.5
THETA = 2.0
#: Part of the rounds in which a network learns its loss alone: rates of one that knows nothing are no guide.
LOSS_FIRST = 0.3
#: Of the server's steps: w goes on for about ten rounds in a direction that was good.
MOMENTUM = 0.9
#: Steps count as no shorter than this part of the longest one where the penalty is taken from them.
SHORTEST = 0.05
#: Part of the rounds before steps begin to shrink.
STEADY = 0.5
#: The certificate is looked at so many times on the way.
LOOKS = 10


@dataclass(kw_only=True)
class Schedule:
    """What the rounds of a run are like.

    corrected: whether local steps are, as on convex problems
    curvature: L; reach: sum_i |J_i|^2, as all constraints pull at one w
    caution:   part of the length of steps that is used, halved after steps that ran away
    steps:     local steps in a round; rounds: all of them; k: how many are done; looked: by the latest look
    """

    corrected: bool
    curvature: float = 1.0
    reach: float = 0.0
    caution: float = 1.0
    steps: int = 1
    rounds: int = 1
    k: int = 0
    looked: int = 0

    @property
    def momentum(self) -> float:
        """It falls with the steps: what w owes to earlier rounds answers no multiplier."""
        return 0.0 if self.corrected else MOMENTUM * self.decay

    @property
    def pace(self) -> float:
        """r: what w will still do about a violation is not asked of it again."""
        return 1 - self.momentum

    @property
    def decay(self) -> float:
        """Of steps and penalty: 1, then linearly to zero."""
        return min(1.0, (1 - self.k / self.rounds) / (1 - STEADY))

    @property
    def longest_step(self) -> float:
        stride = CORRECTED_STRIDE if self.corrected else STRIDE
        return self.caution * stride / self.curvature

    @property
    def penalty(self) -> float:
        if not self.reach:
            return 0.0
        if self.corrected:
            return self.decay * CORRECTED_THETA / (self.longest_step * self.steps * self.reach)
        if self.loss_first:
            return 0.0
        step_size = max(self.decay, SHORTEST) * self.longest_step
        travel = step_size * self.steps / (1 - self.momentum)
        return THETA / (travel * self.reach)

    @property
    def loss_first(self) -> bool:
        return not self.corrected and self.k < LOSS_FIRST * self.rounds

    @property
    def look_is_due(self) -> bool:
        if self.loss_first:
            return False
        return self.k - self.looked >= self.rounds / LOOKS or self.k == self.rounds
