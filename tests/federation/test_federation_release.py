"""What may leave a table in all: rules about sums, questions, errors and runs, each with what succeeds without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from raising import raises_code

pytest.importorskip("cryptography")
pytest.importorskip("fedpact_experiments")

from fedpact.data.encoding import Scaling
from fedpact.solvers.constrained.interior_point import Begin, begin
from fedpact.solvers.steps import At, judge
from fedpact.tasks import Classification
from fedpact_experiments.attacks.hospitals import Coordinator, Hospitals, write_hospitals

JOB = Classification(label="ill", columns=("age", "dose"), standardize=True)
FAIR = Scaling((60.0, 10.0), (60.0, 10.0), (9.0, 3.0))

Start = Callable[..., tuple[Coordinator, Hospitals]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """A coordinator with keys agreed on, and three hospitals with these rules beside those of their template."""

    def open_run(rules: str = "", job: Classification = JOB) -> tuple[Coordinator, Hospitals]:
        hospitals = write_hospitals(tmp_path / str(len(list(tmp_path.iterdir()))), rules)
        run = Coordinator(hospitals.open(), hospitals.key, job)
        run.agree()
        return run, hospitals

    return open_run


# ---------------------------------------------------------------------------- finding 3: models that single rows out


def test_a_model_so_large_that_its_sums_are_those_of_a_half_space_is_refused(start: Start) -> None:
    """Where it is not, gradients count rows on either side of a plane that the coordinator moves."""
    w = 1e6 * np.array([1.0, 0.3, -0.5])
    free, hospitals = start("[require]\neffective_rows = 0\n[limit]\nmodel_size = 1e9")
    task = replace(free.job, scaling=FAIR)
    told = free.total(judge, At(w=w), task).gradient[-1]
    wrong = 0.0
    for X, y in zip(hospitals.tables.values(), hospitals.labels.values(), strict=True):
        ahead = (X - [60.0, 10.0]) / [9.0, 3.0] @ w[:2] + w[2] > 0
        wrong += np.mean(ahead - y) / 3
    assert told == pytest.approx(wrong, abs=1e-9)
    ruled, _ = start()
    with raises_code("FP-REFUSED-645"):
        ruled.total(judge, At(w=w), task)


def test_a_sum_that_rests_on_a_few_rows_is_refused(start: Start) -> None:
    """Curvatures are those of the rows next to the plane: their sum is one row's, where there is one."""
    rules = "[require]\neffective_rows = {}\n[limit]\nmodel_size = 1e9"
    order = Begin(w=200 * np.array([1.0, 0.6, -0.5]), coupled=np.zeros(0), judged_coupled=np.zeros(0), holders=3)
    free, _ = start(rules.format(0))
    assert np.any(free.total(begin, order, replace(free.job, scaling=FAIR)).matrix)
    ruled, _ = start(rules.format(5))
    with raises_code("FP-REFUSED-644"):
        ruled.total(begin, order, replace(ruled.job, scaling=FAIR))
