"""What all classifiers share: a model is handed out only with its certificate."""

from __future__ import annotations

from sklearn.base import BaseEstimator, ClassifierMixin

from fedpact.errors import FedpactError
from fedpact.solvers import Solution


class CertifiedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of scikit-learn whose training ends with a certificate."""

    def _accept(self, solution: Solution) -> None:
        """Set solution_, certificate_ and history_.

        Raises FedpactError when the solution is not certified: a model that misses what was asked for is not handed out
        as one that has it, and a warning would be read too late.
        """
        self.solution_ = solution
        if not solution.solved:
            raise FedpactError(
                f"no certified model: {solution.status}, {solution.reason}; the best point so far is in solution_",
                code="FP-475",
            )
        self.certificate_ = solution.certificate
        self.history_ = solution.history
