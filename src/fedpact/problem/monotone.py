"""Problems beyond minimisation: zeros of sums of monotone operators, and saddle points as their main case."""

from __future__ import annotations

from collections.abc import Iterable

from fedpact.errors import ProblemError
from fedpact.functions import Operator, Saddle
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.share import Share
from fedpact.prox import Blocks, Prox, Zero


class MonotoneProblem(FederatedProblem):
    """Find x with 0 in sum_i F_i(x) + dh(x), F_i monotone: an m-player game, a variational inequality.

    operators: one Operator (or Share that holds one) per owner; regularizer: h, a Prox
    """

    monotone = True
    convex = True  # what the operators promise: a zero of their sum is the answer, not only a candidate

    def __init__(self, operators: Iterable[Operator | Share], regularizer: Prox | None = None) -> None:
        given = list(operators)
        shares = [one if isinstance(one, Share) else Share(one, name=f"client {i}") for i, one in enumerate(given, 1)]
        for i, share in enumerate(shares, 1):
            if share.objective is None or share.constraint is not None or share.coupled is not None:
                raise ProblemError(
                    f"{share.name or f'client {i}'}: a monotone problem takes operators only; a set that w must lie in "
                    "is a regularizer, for example fp.prox.Box or fp.prox.Simplex"
                )
        super().__init__(shares, None, regularizer)


class MinimaxProblem(MonotoneProblem):
    """min_u max_v  g(u) + sum_i f_i(u, v) - h(v), f_i convex in u and concave in v; the answer is w = (u, v).

    functions: one Saddle (or Share that holds one) per owner, all with the same split
    minimizer: g, a Prox on u; maximizer: h, a Prox on v
    """

    def __init__(
        self, functions: Iterable[Saddle | Share], minimizer: Prox | None = None, maximizer: Prox | None = None
    ) -> None:
        given = list(functions)
        splits: dict[int, str] = {}
        for i, one in enumerate(given, 1):
            function = one.objective if isinstance(one, Share) else one
            name = (one.name if isinstance(one, Share) else None) or f"client {i}"
            if not isinstance(function, Saddle):
                raise ProblemError(
                    f"{name}: expected a function f(u, v), got {type(function).__name__}; wrap a callable as "
                    "fp.functions.Saddle(fun, split), split the length of u"
                )
            splits.setdefault(function.split, name)
            if len(splits) > 1:
                (split, first), (other, _) = splits.items()
                raise ProblemError(
                    f"{name}: its u has length {other}, that of {first} {split}; all owners must split w alike"
                )
        for role, given_prox in (("minimizer", minimizer), ("maximizer", maximizer)):
            if given_prox is not None and not isinstance(given_prox, Prox):
                raise ProblemError(f"the {role} must be one of fedpact.prox, got {type(given_prox).__name__}")
        self.split = next(iter(splits), 0)
        super().__init__(given, Blocks(minimizer or Zero(), maximizer or Zero(), self.split, saddle=True))
