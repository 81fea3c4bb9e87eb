"""Problems beyond minimisation: zeros of sums of monotone operators, and saddle points as their main case."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedpact.errors import ProblemError
from fedpact.functions import Operator, Saddle
from fedpact.problem.federated import FederatedProblem
from fedpact.problem.share import Share
from fedpact.prox import Blocks, Prox, Zero, check_prox


class MonotoneProblem(FederatedProblem):
    """Find x with 0 in sum_i F_i(x) + dh(x), F_i monotone: an m-player game, a variational inequality.

    operators:   one Operator (or Share that holds one) per owner
    regularizer: h, a Prox; None means zero

    Raises ProblemError when a share holds anything but an operator.
    """

    monotone = True
    convex = True  # what the operators promise: a zero of their sum is the answer, not only a candidate

    def __init__(self, operators: Iterable[Operator | Share], regularizer: Prox | None = None) -> None:
        shares: list[Share] = []
        for number, given in enumerate(operators, 1):
            name = f"client {number}"
            share = given if isinstance(given, Share) else Share(given, name=name)
            if set(share.parts) != {"objective"}:
                raise ProblemError(
                    f"{share.name or name}: a monotone problem takes operators only; a set that w must lie in is a "
                    "regularizer, for example fp.prox.Box or fp.prox.Simplex",
                    code="FP-PROBLEM-120",
                )
            shares.append(share)
        super().__init__(shares, None, regularizer)


class MinimaxProblem(MonotoneProblem):
    """min_u max_v  g(u) + sum_i f_i(u, v) - h(v), f_i convex in u and concave in v; the answer is w = (u, v).

    functions: one Saddle (or Share that holds one) per owner, all with the same split
    minimizer: g, a Prox on u; maximizer: h, a Prox on v; None means zero
    """

    def __init__(
        self, functions: Iterable[Saddle | Share], minimizer: Prox | None = None, maximizer: Prox | None = None
    ) -> None:
        given = list(functions)
        _refuse_others(given)
        self.split = max([0, *(split_of(_held(one)) for one in given)])
        first = Zero() if minimizer is None else minimizer
        second = Zero() if maximizer is None else maximizer
        check_prox("the minimizer", first)
        check_prox("the maximizer", second)
        super().__init__(given, Blocks(first, second, self.split, saddle=True))
        check_splits(self)


def split_of(function: object) -> int:
    """The length of u of a saddle function f(u, v), or of what stands for one; -1 for anything else."""
    return int(getattr(function, "split", -1))


def check_splits(problem: MonotoneProblem) -> None:
    """Raises ProblemError unless all owners with saddle functions, and a regularizer of two blocks, split w alike."""
    places = {share.label: split_of(share.objective) for share in problem.shares}
    places["the regularizer"] = split_of(problem.regularizer)
    known = {name: split for name, split in places.items() if split >= 0}
    if not known:
        return
    first, common = next(iter(known.items()))
    for name, split in known.items():
        if split != common:
            raise ProblemError(
                f"{name}: its u has length {split}, that of {first} {common}; all owners must split w alike",
                code="FP-PROBLEM-122",
            )


def _held(given: Saddle | Share) -> object:
    return given.objective if isinstance(given, Share) else given


def _refuse_others(given: Sequence[Saddle | Share]) -> None:
    """Raises ProblemError for what is not a saddle function."""
    for number, one in enumerate(given, 1):
        name = f"client {number}"
        if isinstance(one, Share):
            name = one.name or name
        function = _held(one)
        if not isinstance(function, Saddle):
            raise ProblemError(
                f"{name}: expected a function f(u, v), got {type(function).__name__}; wrap a callable as "
                "fp.functions.Saddle(fun, split), split the length of u",
                code="FP-PROBLEM-121",
            )
