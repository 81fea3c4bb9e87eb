"""What a method is: a frozen dataclass whose fields are its options, what it needs of a problem, and its step.

    state, iterate = solver.init(run)             before the first iteration
    iterate        = solver.step(run, state)      one iteration, in most methods one exchange
    ending         = solver.finish(run, state)    the last exchange: prices, and the certificate of what is returned

`loop.run_solver` does everything else, once for all methods: budget, callbacks, best point, history, stagnation,
evidence, hand-over, lost owners, and the verdict. A method of one's own is a subclass;
docs/how-to/add-a-solver.md has a complete one.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from numbers import Real
from types import NoneType
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_type_hints

import numpy as np

from fedpact.cones import Cone
from fedpact.errors import OptionError
from fedpact.federation.wire import STEPS
from fedpact.problem import FederatedProblem, OwnScored, Share, VerticalProblem
from fedpact.solvers.evidence import weigh_all
from fedpact.solvers.run import Iterate, Run
from fedpact.solvers.steps import Ending, conclude_all
from fedpact.types import Vector

S = TypeVar("S")

# -------------------------------------------------------------------------------------------------------------- options


@dataclass(frozen=True)
class Option:
    """What a field of a solver says about itself: for the check of its value, and for the reference page.

    letter:   the paper's
    least, most: closed ends of its range; above, below: open ones; choices: of a text
    by_owner: may also be one value for each owner, by name
    """

    doc: str
    letter: str = ""
    least: float = -math.inf
    above: float = -math.inf
    below: float = math.inf
    most: float = math.inf
    choices: tuple[str, ...] = ()
    by_owner: bool = False

    @property
    def range(self) -> str:
        """The allowed numbers in words: "above 0 and below 2"; empty when all are allowed."""
        ends = (("of at least", self.least), ("above", self.above), ("below", self.below), ("at most", self.most))
        return " and ".join(f"{word} {end:g}" for word, end in ends if math.isfinite(end))

    def allows(self, value: float) -> bool:
        """Whether this number is finite and within the range."""
        inside = self.least <= value <= self.most
        return inside and self.above < value < self.below and math.isfinite(value)


def option(default: Any, doc: str, **about: Any) -> Any:
    """A field of a solver; `about` are the fields of `Option`."""
    return field(default=default, metadata={"option": Option(doc, **about)})


def each_owner(name: str, given: Mapping[str, float] | Sequence[float], owners: Sequence[str]) -> Vector:
    """The option in owner order. OptionError when an owner has no number, or there is one for somebody else."""
    if isinstance(given, Mapping):
        if given.keys() == set(owners):
            return np.array([given[owner] for owner in owners])
    elif len(given) == len(owners):
        return np.array(given)
    raise OptionError(f"{name} = {given!r}: give one number for each of {', '.join(owners)}", code="FP-OPTION-258")


@cache
def options_of(kind: type[Solver[Any]]) -> dict[str, tuple[Any, Any, Option]]:
    """The options of a method by name: their type, default and description."""
    hints = get_type_hints(kind)
    declared = [f for f in fields(kind) if "option" in f.metadata]
    return {f.name: (hints[f.name], f.default, f.metadata["option"]) for f in declared}


def check_option(name: str, hint: Any, about: Option, value: Any) -> Any:
    """The value as the plain Python type of its hint. OptionError when it is of another type or out of range."""
    if about.by_owner and isinstance(value, Mapping):
        return {str(owner): check_option(f"{name}[{owner!r}]", hint, about, one) for owner, one in value.items()}
    if Sequence[float] in get_args(hint) and isinstance(value, list | tuple | np.ndarray):  # in owner order
        return tuple(check_option(f"{name}[{number}]", hint, about, one) for number, one in enumerate(value))
    kinds = get_args(hint) or (hint,)
    if value is None and NoneType in kinds:
        return None
    kind = next(k for k in kinds if k is not NoneType)
    if kind is bool:
        return _check_flag(name, value)
    if kind == VECTORS:
        return _check_vectors(name, value)
    if kind is str:
        return _check_choice(name, about, value)
    return _check_number(name, kind, about, value)


#: The type of an option that is a vector of each owner.
VECTORS = Mapping[str, list[float]]


def _check_vectors(name: str, value: Any) -> Mapping[str, list[float]]:
    """Plain lists, which a checkpoint can state; whether they fit the problem is for `Solver.check`."""
    try:
        vectors = {str(owner): np.asarray(vector, dtype=np.float64) for owner, vector in dict(value).items()}
    except (TypeError, ValueError):
        vectors = {}
    if vectors and all(vector.ndim == 1 and np.all(np.isfinite(vector)) for vector in vectors.values()):
        return {owner: vector.tolist() for owner, vector in vectors.items()}
    raise OptionError(f"{name}: give a vector of finite numbers for each owner, by name", code="FP-OPTION-257")


def _check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise OptionError(f"{name} = {value!r}: give True or False", code="FP-OPTION-250")
    return bool(value)


def _check_choice(name: str, about: Option, value: Any) -> str:
    if value not in about.choices:
        choices = ", ".join(repr(choice) for choice in about.choices if choice)
        raise OptionError(f"{name} = {value!r}: choose {choices}", code="FP-OPTION-251")
    return str(value)


def _check_number(name: str, kind: type[int] | type[float], about: Option, value: Any) -> float:
    number = isinstance(value, Real) and not isinstance(value, bool) and _is_finite(value)
    whole = number and float(value).is_integer()
    if number and (whole or kind is float) and about.allows(float(value)):
        return kind(value)
    noun = "a whole number" if kind is int else "a number"
    raise OptionError(f"{name} = {value!r}: give {noun} {about.range}".rstrip(), code="FP-OPTION-252")


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that fits no float
        return False


# ---------------------------------------------------------------------------------------------------------------- needs


#: The methods whose `Needs.own` is set, for a message.
TAKE_PRIVATE = '"interior-point", "accelerated" or "proximal-al"'


@dataclass(frozen=True)
class Needs:
    """What a method can be given, and what it shows.

    columns:     parties that hold columns (`VerticalProblem`); all other methods want rows
    constraints: takes constraints of owners and of the server (any cone)
    interior:    ... whose cones have an interior, and functions with Hessians
    coupled:     takes coupled constraints as they are; for other methods they are decoupled by slack variables
    slacks:      ... or for none
    prices:      starts from multipliers that are given to `fp.solve`
    own:         takes variables that owners keep for themselves (`Share.private`)
    own_coupled: ... and coupled constraints as they are that depend on them
    operators:   takes operators that are no gradients
    jacobians:   ... all of which have Jacobians, and functions Hessians
    stands_in:   takes constraints with derivatives of smooth stand-ins (`CountedRates`)
    smooth:      why only a quadratic regularizer is taken; empty: any
    pooled:      reads all shares in one process
    private:     single replies would tell so much that sums are masked by default, wherever owners run
    matrices:    ... or only where owners are other organisations

    Of parties that hold columns, besides gaps between groups and losses that have a name:

    loss_bounds: takes bounds of mean losses
    own_losses:  takes losses of one's own
    score_cones: takes constraints on the scores in any cone
    """

    columns: bool = False
    constraints: bool = False
    interior: bool = False
    coupled: bool = False
    slacks: bool = True
    prices: bool = False
    own: bool = False
    own_coupled: bool = False
    operators: bool = False
    jacobians: bool = False
    stands_in: bool = False
    smooth: str = ""
    pooled: bool = False
    private: bool = False
    matrices: bool = False
    loss_bounds: bool = False
    own_losses: bool = False
    score_cones: bool = False

    def refusal(self, problem: FederatedProblem | VerticalProblem) -> str:
        """Why the problem cannot be taken, with the owner's name and what to use instead; empty when it can."""
        if isinstance(problem, VerticalProblem):
            return self._refusal_of_columns(problem)
        if self.columns:
            return "is for an fp.VerticalProblem, whose parties hold different columns"
        if problem.monotone and not self.operators:
            return 'minimises; for operators use "monotone-newton", "ifeddr", "feddr" or "fedprox"'
        if self.smooth and problem.regularizer.curvature is None:
            return f'takes no {problem.regularizer!r}: {self.smooth}; use "feddr" or "ifeddr"'
        if problem.coupled_length and not self.coupled and not self.slacks:
            return 'takes no coupled constraint; use "accelerated" or "proximal-al"'
        for holder in (*problem.shares, problem.server):  # a coupled constraint shows at both; name the owner
            if why := self._refusal_of(holder, at_server=holder is problem.server):
                return why
        return ""

    def _refusal_of_columns(self, problem: VerticalProblem) -> str:
        if not self.columns:
            return 'needs all columns at every owner; use "vertical-al", "fair-vfl", "fedbcd"'
        for party in problem.shares:
            if self.smooth and not party.quadratic:
                return f"takes no regularizer that is not quadratic, as {party.label} has one: {self.smooth}"
        if problem.constraints and not self.score_cones:
            return 'takes gaps and mean losses only, not constraints on the scores; use "vertical-exact"'
        if not np.all(np.isfinite(problem.least)) and not self.loss_bounds:
            return 'takes gaps between groups only, not max_loss; use "vertical-al" or "vertical-exact"'
        if isinstance(problem.scored, OwnScored) and not self.own_losses:
            return 'tells the parties a loss by its name, and this one has none; use "vertical-al" or "vertical-exact"'
        return ""

    def decoupled(self, problem: FederatedProblem) -> bool:
        """Whether the coupled constraint must be decoupled first, for which all shares are needed in one process."""
        if not problem.coupled_length:
            return False
        return not self.coupled or (problem.couples_private and not self.own_coupled)

    def _refusal_of(self, holder: Share, at_server: bool) -> str:
        if holder.private and not self.own:
            return f"takes no private variables, {holder.label} has some; use {TAKE_PRIVATE}"
        more = holder.constraint is not None or (at_server and bool(holder.parts))
        if more and not self.constraints:
            return f'takes objectives of owners and a regularizer, {holder.label} holds more; use "auto"'
        if not self.stands_in and holder.constraint is not None and holder.constraint.function.stands_in:
            return f'needs derivatives of what it bounds, and {holder.label} counts rates; use "stochastic-al"'
        if self.jacobians and not holder.has_hessian:
            return f'needs Jacobians of operators and Hessians of functions, {holder.label} has none; use "ifeddr"'
        if self.interior and not holder.has_hessian:
            return f'needs Hessians, a function of {holder.label} has none; use "accelerated" or "proximal-al"'
        if self.interior:
            for block in _blocks(holder):
                if not block.has_interior:
                    cone = f"{holder.label} has the cone {block!r}, which has none"
                    return f'needs cones with an interior, {cone}; use "accelerated" or "proximal-al"'
        return ""


def _blocks(holder: Share) -> Iterator[Cone]:
    """The cones of its constraint, and of the coupled one that it holds a part of."""
    if holder.constraint is not None:
        yield from holder.constraint.cone.blocks
    if holder.coupled_cone is not None:
        yield from holder.coupled_cone.blocks


# --------------------------------------------------------------------------------------------------------------- solver


@dataclass(frozen=True, kw_only=True)
class Solver(ABC, Generic[S]):
    """A method. Its fields are its options, declared with `option`; S is what the server keeps between iterations.

    name:     as `fp.solve` calls it
    reserve:  exchanges kept back for the end
    patience: iterations without progress after which it is given up as stalled
    doubt:    iterations without progress after which evidence is asked for, then twice as many, and so on
    progress: a certificate below this part of the lowest so far is progress
    feasible_first: of two points the one with the smaller violation is better, as long as a tolerance is missed
    """

    name: ClassVar[str]
    needs: ClassVar[Needs] = Needs()
    reserve: ClassVar[int] = 3
    patience: ClassVar[int] = 3000
    doubt: ClassVar[int] = 300
    progress: ClassVar[float] = 0.5
    feasible_first: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name, (hint, _, about) in options_of(type(self)).items():
            object.__setattr__(self, name, check_option(name, hint, about, getattr(self, name)))

    @classmethod
    def build(cls, options: dict[str, Any]) -> Solver[S]:
        """The method with these options; None means the default. OptionError names what is unknown or out of range."""
        known = options_of(cls)
        takes = "it takes none: there is nothing to tune"
        if known:
            takes = f"it takes {', '.join(known)}"
        for name in options:
            if name not in known:
                raise OptionError(f"method {cls.name!r} has no option {name!r}; {takes}", code="FP-OPTION-253")
        return cls(**{name: value for name, value in options.items() if value is not None})

    @property
    def one_by_one(self) -> bool:
        """Does it ask single owners? Then sums cannot be masked."""
        return False

    def check(self, run: Run) -> None:
        """OptionError for options that do not fit the problem; called before the first exchange."""

    def weights(self, run: Run) -> Vector:
        """The part of each owner in a penalty that may differ by owner, 1 on average; empty: the same for all."""
        return np.zeros(0)

    @abstractmethod
    def init(self, run: Run) -> tuple[S, Iterate]:
        """Everything before the first iteration: the server's state, and the start as an iterate."""

    @abstractmethod
    def step(self, run: Run, state: S) -> Iterate:
        """One iteration; changes `state`."""

    def finish(self, run: Run, state: S | None) -> Ending:
        """The last exchange: every owner's price of the best point, and the certificate of exactly that pair.

        state is None when the run ended inside `init`.
        """
        return conclude_all(run)

    def fallback(self, state: S) -> str:
        """The method that goes on from the best point where this one is stalled; empty: none."""
        return ""

    def excuse(self, run: Run, state: S) -> str:
        """What may keep this method from a solution, for the reason of a run that stalls or is out of exchanges."""
        return ""

    def separator(self, run: Run, state: S) -> tuple[Vector | None, Vector]:
        """The server's part of a proof of infeasibility: the point where it balances (None: any), and weights."""
        return None, np.zeros(run.problem.server.multiplier_length)

    def conflict(self, run: Run, state: S, w: Vector) -> tuple[str, ...]:
        """The holders whose constraints exclude each other, when that can be proved: by default one exchange."""
        return weigh_all(run, w, *self.separator(run, state))


def steps_of(kind: type[Solver[Any]]) -> list[str]:
    """What owners must be able to run for a method, by name: registered steps that its module defines or imports."""
    modules = [sys.modules[base.__module__] for base in kind.__mro__ if base.__module__ in sys.modules]
    found = {id(value) for module in modules for value in vars(module).values()}
    return [name for name, step in STEPS.items() if id(step) in found]


def defaults(kind: type[Solver[Any]]) -> dict[str, Any]:
    """The default of every option, for the reference page."""
    return {name: None if default is MISSING else default for name, (_, default, _) in options_of(kind).items()}
