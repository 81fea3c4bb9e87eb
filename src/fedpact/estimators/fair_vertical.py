"""A fair linear classifier over columns that different parties hold, with scikit-learn's methods."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.utils.validation import check_is_fitted

from fedpact.errors import DataError, FedpactError, OptionError
from fedpact.estimators.certified import CertifiedClassifier
from fedpact.federation import Session
from fedpact.fitting.scores import fit_on_scores
from fedpact.postprocess.checks import find_levels, read_vector
from fedpact.problem import DistantParty, Piece, VerticalProblem
from fedpact.problem.gaps import Group
from fedpact.problem.scored import Loss
from fedpact.prox import SquaredL2
from fedpact.solve import solve
from fedpact.solvers.vertical.shared import rows_of, summed_scores
from fedpact.statistics import Summary
from fedpact.tasks import Classification, Requirement, Vertical
from fedpact.tasks.group_fairness import Parity
from fedpact.tasks.requirements import NAMED_GAPS
from fedpact.types import Vector

#: Written into a saved model, so that another format is not read as this one.
MODEL = "fedpact-vertical-model-1"
Parties = Mapping[str, ArrayLike] | Sequence[ArrayLike]


class FairVerticalClassifier(CertifiedClassifier):
    """A linear classifier whose gap between groups is at most `max_gap`; every party keeps its own part.

    It is not an estimator of scikit-learn, although it has the methods of one and can be cloned: `fit` takes a table
    for each party in the place of X, and needs `group`. Pipelines and `GridSearchCV`, which split one table, do not
    apply.

    max_gap:     largest gap between any two groups, on the rows it is fitted to
    parity:      what may differ by max_gap: the mean "loss", or rates of decisions, which are counted:
                 "demographic_parity", "equal_opportunity" or "equalized_odds", as in `FairClassifier`. These need
                 the method "vertical-exact", which tells the coordinator the pooled rows up to a rotation of the
                 columns; "auto" takes it then
    gap:         of the loss: of rows of the last class ("positives"), of "all" rows, or of each of the "classes"
    confidence:  for people not yet seen: gaps of decisions are at most max_gap with this probability; None: on the
                 people it is trained on
    holdout:     with a confidence: part of the people that is held out of training to test the promise
    weight:      of the squared norm, per party's standardized column; None: 2/n, the paper's
    standardize: does each party scale its own columns? Their means and scales stay with it, too
    method:      "auto", "vertical-al", "fair-vfl", "vertical-exact"; tol, max_rounds, engine, seed: of fp.solve
    secure_sum:  hide each party's scores from the coordinator, in fitting and in prediction
    inference:   "sandwich", "hc0" or "model": `summary` has standard errors and intervals; of gaps of the loss, with
                 the method "vertical-exact" by name

    More than two classes have a score each, by softmax.

    After fit: solution_, certificate_, history_, pieces_ (party -> Piece), intercept_ (of several classes one each),
    classes_, and by name of the gap gaps_ and multipliers_ (the price: what one unit more of max_gap would save).
    `parties` is a mapping from names to columns, or a list of columns in the order of fit; all have the same people in
    the same order (`fedpact.alignment`).
    """

    def __init__(
        self,
        max_gap: float = 0.05,
        *,
        parity: Parity = "loss",
        gap: Literal["positives", "all", "classes"] = "positives",
        confidence: float | None = None,
        holdout: float = 0.5,
        weight: float | None = None,
        standardize: bool = True,
        method: str = "auto",
        tol: float = 1e-3,
        max_rounds: int | None = None,
        engine: Any = None,
        secure_sum: bool = True,
        inference: str = "none",
        seed: int = 0,
    ) -> None:
        self.max_gap = max_gap
        self.parity = parity
        self.gap = gap
        self.confidence = confidence
        self.holdout = holdout
        self.weight = weight
        self.standardize = standardize
        self.method = method
        self.tol = tol
        self.max_rounds = max_rounds
        self.engine = engine
        self.secure_sum = secure_sum
        self.inference = inference
        self.seed = seed

    def fit(self, parties: Parties, y: ArrayLike, *, group: Group) -> Self:
        """y: two classes or more, the last in sorted order is the positive one.

        group: one label a row, or several protected attributes, name -> labels: gaps between groups of each are bounded

        Raises DataError or ProblemError for bad tables, FedpactError when no certified model was found.
        """
        self.__dict__.pop("pieces_", None)  # a fit that fails shall not leave the model of the one before
        labels = read_vector("y", y)
        self.classes_ = np.unique(labels)
        if self.classes_.size < 2:
            raise DataError(
                f"all rows are of class {self.classes_[0]!s}; a classifier needs two classes or more",
                code="FP-DATA-477",
            )
        if self.parity != "loss":
            return self._fit_decisions(parties, labels, group)
        problem = VerticalProblem(
            _name_parties(parties),
            self._encode(labels),
            group,
            self.max_gap,
            loss=self._loss,
            gap=self.gap,
            regularizer=None if self.weight is None else SquaredL2(self.weight),
            standardize=self.standardize,
        )
        options: dict[str, Any] = {}
        if self.inference != "none":
            options["inference"] = self.inference
        solution = solve(
            problem,
            self.method,
            tol=self.tol,
            max_rounds=self.max_rounds,
            engine=self.engine,
            seed=self.seed,
            secure_sum=self.secure_sum and len(problem.shares) > 1,
            **options,
        )
        self._accept(solution)
        self._keep(problem, solution.w)
        prices = solution.multipliers[0].reshape(-1, 2).max(axis=1)  # of either side of a gap
        self.multipliers_ = dict(zip(problem.gap_names, map(float, prices), strict=True))
        self.gaps_ = self._find_gaps(self.decision_function(parties), labels, group)
        return self

    def _keep(self, problem: VerticalProblem, w: Vector) -> None:
        """Set pieces_ and intercept_."""
        parts = problem.pieces(w)
        self.pieces_ = {party.name: party.piece(parts[party.name]) for party in problem.shares}
        intercept = parts[problem.server.name]
        self.intercept_ = intercept if self._several else float(intercept[0])
        self.n_features_in_ = sum(party.width for party in problem.shares)

    @property
    def _several(self) -> bool:
        """Whether there are more than two classes, each with a score."""
        return bool(self.classes_.size > 2)

    @property
    def _loss(self) -> Loss:
        return "softmax" if self._several else "logistic"

    def _encode(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """The number of every row's class; of two, 0 for all but the second, of several, -1 for none of them."""
        if not self._several:
            return np.asarray(labels == self.classes_[1], dtype=np.int64)
        known = labels[:, None] == self.classes_
        codes: NDArray[np.int64] = np.where(known.any(axis=1), np.argmax(known, axis=1), -1)
        return codes

    def _fit_decisions(self, parties: Parties, labels: NDArray[Any], group: Group) -> Self:
        """Rates of decisions are bounded, and counted on the parties' own scores."""
        if self.method not in ("auto", "vertical-exact"):
            raise OptionError(
                f'method {self.method!r} takes gaps of mean loss only; use "vertical-exact" for parity {self.parity!r}',
                code="FP-OPTION-471",
            )
        problem = VerticalProblem(
            _name_parties(parties),
            self._encode(labels),
            loss=self._loss,
            regularizer=None if self.weight is None else SquaredL2(self.weight),
            standardize=self.standardize,
        )
        task, members = self._ask_for_gaps(group, len(labels))
        with Session(self.engine) as session:
            session.open(problem.sources)
            if self.secure_sum and len(problem.shares) > 1:
                session.secure()
            found = fit_on_scores(
                task, problem, session, members, tol=self.tol, seed=self.seed, inference=self.inference
            )
        self._accept(found.solution)
        self._keep(problem, found.w)
        self.gaps_ = self._find_gaps(self._by_person(found.scores), labels, group)
        self.multipliers_ = dict(zip(self.gaps_, found.prices, strict=True))
        return self

    def _ask_for_gaps(self, group: Group, rows: int) -> tuple[Classification, NDArray[np.int64]]:
        """The task, and the number of every person's group, or combination of groups."""
        levels = {}
        codes = []
        for name, labels in _by_attribute(group).items():
            groups, members = find_levels(name or "group", labels, rows)
            if groups.size < 2:
                raise DataError(
                    f"all rows are of group {groups[0]!s}; a gap needs two groups or more", code="FP-DATA-482"
                )
            levels[name] = tuple(map(str, groups))
            codes.append(members)
        protected: dict[str, Any] = {"attributes": levels}
        if "" in levels:
            protected = {"group": "group", "groups": levels[""]}
        task = Vertical(
            label="y",
            classes=tuple(map(str, self.classes_)),
            constraints=(Requirement(kind=self.parity, at_most=self.max_gap, confidence=self.confidence or 0.0),),
            holdout=self.holdout,
            **protected,
        )
        sizes = [len(each) for each in levels.values()]
        return task.decisions(self.seed), np.ravel_multi_index(tuple(codes), sizes)

    def summary(self, level: float = 0.95) -> Summary:
        """Coefficients in the units of the parties' columns, and prices, with standard errors, tests and intervals.

        The intercept is that of the columns as the parties scale them. Raises OptionError where there are none.
        """
        check_is_fitted(self, "solution_")
        inference = self.solution_.inference
        if inference is None:
            raise OptionError(
                'this model has no standard errors; ask for them by inference="sandwich", method="vertical-exact"',
                code="FP-OPTION-472",
                key="inference",
            )
        columns = [f"{name}: {j}" for name, piece in self.pieces_.items() for j in range(piece.mean.size)]
        names = [*columns, "intercept"]
        units = np.concatenate([*(piece.scale for piece in self.pieces_.values()), [1.0]])
        if self._several:
            names = [f"{one}: {name}" for one in self.classes_ for name in names]
            units = np.tile(units, self.classes_.size)
        gaps = list(self.multipliers_)
        prices = [gaps[row // 2] for _, row in inference.binding]  # every gap is bounded from both sides
        return inference.describe(np.diag(1 / units), names, np.ones(len(prices)), prices, level)

    def decision_function(self, parties: Parties, *, missing: Literal["error", "mean"] = "error") -> Vector:
        """Scores of new people, (rows,) or of several classes (rows, classes): one exchange, to which every party adds
        its own part.

        missing: "mean" scores without absent parties, as if everyone had the mean of their columns (zero, with
            standardize=False). The gap was bounded with all parties: `recheck` tells what it is without them.
        """
        check_is_fitted(self, "pieces_")
        given = self._by_name(parties)
        absent = [name for name in self.pieces_ if name not in given]
        if absent and missing == "error":
            raise DataError(
                f"{', '.join(absent)}: no columns; the gap was bounded with all parties. See what it is without with "
                'recheck(parties, y, group=...), then predict with missing="mean"',
                code="FP-DATA-478",
            )
        if not given:
            raise DataError("no party has columns; give at least one", code="FP-DATA-479")
        with Session(self.engine) as session:
            session.open(rows_of(list(self.pieces_.values()), given))
            return self._by_person(summed_scores(session, self.secure_sum and len(given) > 1)) + self.intercept_

    def _by_person(self, scores: Vector) -> Vector:
        """Scores, of several classes one a column."""
        return scores.reshape(self.classes_.size, -1).T if self._several else scores

    def predict(self, parties: Parties, *, missing: Literal["error", "mean"] = "error") -> NDArray[Any]:
        """The class of every row."""
        decided = self._decide(self.decision_function(parties, missing=missing))
        return np.asarray(self.classes_[decided])

    def _decide(self, scores: Vector) -> NDArray[np.int64]:
        """The number of everyone's class."""
        if self._several:
            return np.asarray(np.argmax(scores, axis=1))
        return (scores > 0).astype(np.int64)

    def predict_proba(self, parties: Parties) -> Vector:
        """(rows, classes): the probabilities of all classes."""
        scores = self.decision_function(parties)
        if self._several:
            return np.asarray(softmax(scores, axis=1))
        positive = 1 / (1 + np.exp(-scores))
        return np.stack([1 - positive, positive], axis=1)

    def score(self, parties: Parties, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy."""
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return float(np.average(self.predict(parties) == np.asarray(y), weights=weights))

    def recheck(self, parties: Parties, y: ArrayLike, *, group: Group) -> dict[str, float]:
        """The gaps on other rows, or without some parties, by name; compare them with max_gap."""
        return self._find_gaps(self.decision_function(parties, missing="mean"), np.asarray(y), group)

    def save(self, folder: str | Path) -> Path:
        """Write the model in pieces: one file a party, to be handed to it alone, and the coordinator's."""
        check_is_fitted(self, "pieces_")
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        for name, piece in self.pieces_.items():
            piece.save(target / f"{name}.npz")
        parameters = {k: v for k, v in self.get_params().items() if k != "engine"}
        about = {
            "format": MODEL,
            "parties": list(self.pieces_),
            "intercept": np.asarray(self.intercept_).tolist(),
            "classes": self.classes_.tolist(),
            "gaps": self.gaps_,
            "parameters": parameters,
        }
        (target / "coordinator.json").write_text(json.dumps(about, indent=1))
        return target

    @classmethod
    def load(cls, folder: str | Path, pieces: Mapping[str, str | Path] | None = None) -> Self:
        """Read what `save` wrote; pieces: where the parties' files are, when they are not in the folder.

        Raises FedpactError when it cannot be read.
        """
        source = Path(folder)
        try:
            about = json.loads((source / "coordinator.json").read_text())
            if about["format"] != MODEL:
                raise ValueError(f"it is not of format {MODEL}")
            model = cls(**about["parameters"])
            model.classes_ = np.asarray(about["classes"])
            model.intercept_ = np.asarray(about["intercept"]) if model._several else float(about["intercept"])
            model.gaps_ = dict(about["gaps"])
            names = list(about["parties"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            words = f"{source} cannot be read as a saved model ({error}); save it again"
            raise FedpactError(words, code="FP-480") from error
        files = {name: source / f"{name}.npz" for name in names} | dict(pieces or {})
        model.pieces_ = {name: Piece.load(files[name]) for name in names}
        model.n_features_in_ = sum(piece.mean.size for piece in model.pieces_.values())
        return model

    def _find_gaps(self, scores: Vector, y: NDArray[Any], group: Group) -> dict[str, float]:
        labels = self._encode(y)
        last = self.classes_.size - 1
        if self.parity != "loss":
            decided = self._decide(scores) == last
            found: dict[str, float] = {}
            for name, members in _by_attribute(group).items():
                gaps = _count_gaps(self.parity, decided, labels == last, np.asarray(members))
                found |= {f"{name}: {gap}" if name else gap: value for gap, value in gaps.items()}
            return found
        judged = VerticalProblem.of_parties(
            [DistantParty("all", 1)],
            labels,
            group,
            self.max_gap,
            loss=self._loss,
            gap=self.gap,
            classes=self.classes_.size,
        )
        gaps = np.abs(judged.scored.gaps(scores.T.ravel())).tolist()
        return dict(zip(judged.gap_names, gaps, strict=True))

    def _by_name(self, parties: Parties) -> dict[str, ArrayLike]:
        if isinstance(parties, Mapping):
            return dict(parties)
        if len(parties) != len(self.pieces_):
            raise DataError(
                f"{len(parties)} blocks of columns for {len(self.pieces_)} parties ({', '.join(self.pieces_)}); give "
                "all, or a mapping from names",
                code="FP-DATA-481",
            )
        return dict(zip(self.pieces_, parties, strict=True))


def _count_gaps(
    parity: str, decided: NDArray[np.bool_], positive: NDArray[np.bool_], group: NDArray[Any]
) -> dict[str, float]:
    """How far the rates of decisions for the last class are apart, by rate and pair of groups."""
    among = {"selection_rate": positive | ~positive, "recall": positive, "false_positive_rate": ~positive}
    gaps = {}
    for rate in NAMED_GAPS[parity]:
        for first, second in combinations(np.unique(group), 2):
            rates = [np.mean(decided[among[rate] & (group == name)]) for name in (first, second)]
            gaps[f"{rate}: {first!s} - {second!s}"] = float(abs(rates[0] - rates[1]))
    return gaps


def _by_attribute(group: Group) -> dict[str, ArrayLike]:
    """The labels of every protected attribute; "" is the name of the only one."""
    return dict(group) if isinstance(group, Mapping) else {"": group}


def _name_parties(parties: Parties) -> dict[str, ArrayLike]:
    if isinstance(parties, Mapping):
        return dict(parties)
    return {f"party {k}": X for k, X in enumerate(parties, 1)}
