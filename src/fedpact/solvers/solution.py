"""What comes back: the answer, how it was judged, how it was reached, and what it cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from zipfile import BadZipFile

import numpy as np

from fedpact.errors import FedpactError, OptionError
from fedpact.federation import Communication, Session, Traffic
from fedpact.notebook import frame, show
from fedpact.problem import Certificate, FederatedProblem, Proof, RemoteProblem, VerticalProblem
from fedpact.types import Vector

if TYPE_CHECKING:
    from fedpact.solvers.inference import Inference
    from fedpact.statistics import Summary

#: "unproven" is of fits only: certified, bounds met by count, and a promise that held-out rows do not bear out.
#: "feasible" is of networks and other problems without a certificate: all rounds are done, and every bound is met.
Status = Literal[
    "solved", "feasible", "max_rounds", "stalled", "infeasible", "unbounded", "client_lost", "interrupted", "unproven"
]
FORMAT = "fedpact-solution-1"
#: Begins a note of a history that a user should see at once.
WARNING = "WARNING: "


@dataclass(frozen=True)
class OuterRecord:
    """One outer iteration: the checked certificate of its point, and what had been spent when it was reached.

    penalty:           beta; the complementarity that "interior-point" aimed at; rho of "accelerated"
    consensus_penalty: rho; the damping of "interior-point"
    violations:        by holder; with thousands of owners the thousand largest
    gradients, hessians count the evaluations of the owners' subproblem solves in this iteration, over all owners.
    """

    iteration: int
    objective: float
    stationarity: float
    feasibility: float
    violations: dict[str, float]
    inner_rounds: int
    rounds: int
    bytes: int
    penalty: float
    consensus_penalty: float
    gradients: int
    hessians: int


@dataclass(frozen=True)
class InnerRecord:
    """One round of the inner solver: its residual (the left side of He24 (23)) and its target."""

    iteration: int
    round: int
    residual: float
    target: float
    consensus_penalty: float


@dataclass(frozen=True)
class LocalRecord:
    """One round of a method that leaves local work to the owners ("ifeddr" and its kin).

    refinements: requests to do more; gradients: evaluations by owner, in owner order; alpha: the adaptive step;
    residual: natural residual of the point that the round began with (NaN when it was not looked at); gamma: the step
    """

    iteration: int
    rounds: int
    refinements: int
    gradients: tuple[int, ...]
    alpha: float
    residual: float
    gamma: float


@dataclass
class History:
    """What happened, in order: outer iterations, inner rounds, and the choices made on the way."""

    outer: list[OuterRecord] = field(default_factory=list)
    inner: list[InnerRecord] = field(default_factory=list)
    local: list[LocalRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.outer)

    def moved(self, iterations: int, rounds: int, bytes: int) -> History:
        """The same of a solve that began after so many iterations, exchanges and bytes of another one."""
        outer = [
            replace(one, iteration=iterations + one.iteration, rounds=rounds + one.rounds, bytes=bytes + one.bytes)
            for one in self.outer
        ]
        inner = [replace(one, iteration=iterations + one.iteration) for one in self.inner]
        local = [replace(one, iteration=iterations + one.iteration) for one in self.local]
        return History(outer, inner, local, self.notes)

    def to_frame(self) -> Any:
        """The judged iterates as a pandas DataFrame, a column for each owner's violation; FedpactError without it."""
        rows = []
        for one in self.outer:
            row = asdict(one)
            violations = row.pop("violations")
            rows.append({**row, **{f"violation {owner}": value for owner, value in violations.items()}})
        return frame(rows)


@dataclass(frozen=True, eq=False)
class Solution:
    """The answer of a solve; only `status == "solved"` means that the certificate met the asked tolerances.

    w:                  the model
    multipliers:        [server, client 1, ...]: the price of each constraint (empty where there is none)
    coupled_multiplier: the price of the coupled constraint (empty when there is none)
    status, reason:     how it ended, and why in a sentence
    certificate:        of (w, multipliers), recomputed by `fedpact.problem.certificate`
    objective:          sum_i f_i(w) + h(w)
    rounds:             exchanges with the owners (one message down and one up)
    private:            of every owner, in order, the variables that it keeps for itself; only where all owners are in
                        this process, which then has them from the owners' own memory. Never saved
    scores:             of all people, in a vertical problem: the coordinator's. Never saved
    inference:          of a vertical problem, where standard errors were asked for: `summary`. Never saved
    """

    w: Vector
    multipliers: list[Vector]
    status: Status
    reason: str
    certificate: Certificate
    objective: float
    tol: tuple[float, float]
    method: str
    history: History
    communication: Communication
    coupled_multiplier: Vector = field(default_factory=lambda: np.zeros(0))
    conflict: tuple[str, ...] = ()  # the owners whose constraints conflict, when infeasible
    proof: Proof | None = field(default=None, repr=False)  # of that, where all owners are in this process; never saved
    ray: Vector | None = field(default=None, repr=False)  # when unbounded, where one was found and checked; never saved
    convex: bool = False  # is the problem known to be convex? Then a solved one is optimal, up to the tolerances
    private: list[Vector] | None = field(default=None, repr=False)
    scores: Vector | None = field(default=None, repr=False)
    inference: Inference | None = field(default=None, repr=False)

    @property
    def rounds(self) -> int:
        return self.communication.rounds

    @property
    def solved(self) -> bool:
        return self.status == "solved"

    def __repr__(self) -> str:
        c = self.certificate
        return (
            f"Solution({self.status}, objective={self.objective:.6g}, stationarity={c.stationarity:.2e}, "
            f"feasibility={c.feasibility:.2e}, rounds={self.rounds}, method={self.method!r}{self._digits})"
        )

    @property
    def _digits(self) -> str:
        digits = self.certificate.digits
        return "" if digits is None else f", about {int(max(digits, 0.0))} digits"

    def _repr_html_(self) -> str:
        c = self.certificate
        facts = [
            f"{self.status}: {self.reason}",
            f"objective {self.objective:.6g}",
            f"stationarity {c.stationarity:.1e} ({self.tol[0]:g} asked)",
            f"feasibility {c.feasibility:.1e} ({self.tol[1]:g} asked)",
            f"{self.rounds} exchanges, {self.communication.bytes / 1e6:.2f} MB, {self.method}",
        ]
        return show("Solution", facts, ("owner", "violation"), c.violations.items())

    def summary(
        self,
        problem: FederatedProblem | RemoteProblem | VerticalProblem,
        names: Sequence[str] | None = None,
        *,
        covariance: str = "sandwich",
        level: float = 0.95,
        session: Session | None = None,
    ) -> Summary:
        """Standard errors, tests and intervals of w and of the prices, by one more exchange with the owners.

        problem:    the one that was solved; its objectives are means over rows, such as fp.functions.LogisticLoss. A
                    vertical one is asked while it is solved: fp.solve(problem, "vertical-exact", inference="sandwich")
        names:      of the entries of w
        covariance: "sandwich", "hc0", "model" or "clustered": `fedpact.solvers.inference` says what each assumes
        session:    where the owners are; by default this process. Give that of the solve where owners keep variables
        """
        from fedpact.solvers.inference import infer_solution

        if isinstance(problem, VerticalProblem):
            return self._summarize_parties(problem, names, level)
        return infer_solution(self, problem, covariance, session).summary(names, level)

    def _summarize_parties(self, problem: VerticalProblem, names: Sequence[str] | None, level: float) -> Summary:
        """The table of what was told: all, or where parties keep their coefficients what is the coordinator's."""
        if self.inference is None:
            raise OptionError(
                "this solution of a vertical problem has no standard errors; ask for them when it is solved, by "
                'fp.solve(problem, "vertical-exact", inference="sandwich")',
                code="FP-OPTION-936",
                key="inference",
            )
        called = names
        if called is None:
            called = problem.coefficient_names if self.inference.w.size == problem.dim else problem.intercept_names
        prices = [problem.bound_names[row] for _, row in self.inference.binding]
        identity = np.eye(self.inference.w.size)
        return self.inference.describe(identity, called, np.ones(len(prices)), prices, level)

    def save(self, path: str | Path) -> Path:
        """Write one .npz: the arrays, and everything else as JSON text under 'meta'. Nothing is pickled."""
        target = Path(path)
        if not target.name.endswith(".npz"):
            target = Path(f"{path}.npz")
        meta: dict[str, Any] = {
            "format": FORMAT,
            **{k: getattr(self, k) for k in ("status", "reason", "objective", "tol", "method", "conflict", "convex")},
            **{k: asdict(getattr(self, k)) for k in ("certificate", "history", "communication")},
            "multipliers": len(self.multipliers),
        }
        arrays: dict[str, Any] = {f"multiplier_{i}": m for i, m in enumerate(self.multipliers)}
        with target.open("wb") as file:
            np.savez(
                file, w=self.w, coupled_multiplier=self.coupled_multiplier, meta=np.array(json.dumps(meta)), **arrays
            )
        return target

    @classmethod
    def load(cls, path: str | Path) -> Solution:
        """Read what `save` wrote. Raises FedpactError when the file is damaged or of another format."""
        try:
            with np.load(Path(path), allow_pickle=False) as file:
                meta = json.loads(str(file["meta"]))
                if meta.pop("format", None) != FORMAT:
                    found = f"{path} is not a saved solution of format {FORMAT}"
                    raise FedpactError(f"{found}; load it with the version that saved it", code="FP-250")
                multipliers = [file[f"multiplier_{i}"] for i in range(meta.pop("multipliers"))]
                w = file["w"]
                coupled = file["coupled_multiplier"]
        except (
            OSError,
            ValueError,
            KeyError,
            EOFError,
            TypeError,
            AttributeError,
            BadZipFile,
            RecursionError,
        ) as error:
            found = f"{path} cannot be read as a saved solution ({error})"
            raise FedpactError(f"{found}; save it again", code="FP-251") from error
        history = meta.pop("history")
        communication = meta.pop("communication")
        return cls(
            w=w,
            multipliers=multipliers,
            coupled_multiplier=coupled,
            certificate=Certificate(**meta.pop("certificate")),
            history=History(
                [OuterRecord(**r) for r in history["outer"]],
                [InnerRecord(**r) for r in history["inner"]],
                [LocalRecord(**{**r, "gradients": tuple(r["gradients"])}) for r in history["local"]],
                history["notes"],
            ),
            communication=Communication(
                communication["rounds"],
                {k: Traffic(**{**t, "fields": tuple(t["fields"])}) for k, t in communication["owners"].items()},
            ),
            tol=tuple(meta.pop("tol")),
            conflict=tuple(meta.pop("conflict")),
            **meta,
        )
