"""A request is one thing: who takes part, in which job, with which task. All owners of a sum answered the same one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code

pytest.importorskip("cryptography")
pytest.importorskip("fedpact_experiments")

from fedpact.data.encoding import Scaling
from fedpact.solvers.steps import At, judge
from fedpact.tasks import Classification
from fedpact_experiments.attacks.hospitals import Coordinator, write_hospitals

JOB = Classification(label="ill", columns=("age", "dose"), standardize=True)
#: As the hospitals' own columns are, roughly.
FAIR = Scaling((60.0, 10.0), (60.0, 10.0), (9.0, 3.0))


@pytest.fixture
def coordinator(tmp_path: Path) -> Callable[..., Coordinator]:
    """Of three hospitals whose site.toml states columns, peers and keys, and otherwise nothing."""
    hospitals = write_hospitals(tmp_path)

    def start(job: Classification = JOB, **more: Any) -> Coordinator:
        return Coordinator(hospitals.open(), hospitals.key, job, **more)

    return start


# ------------------------------------------------------------------------------ finding 1: the mask covers the task


@pytest.mark.parametrize(
    "change", [{"spread": 0.5}, {"scaling": Scaling((60.0, 10.0), (60.0, 10.0), (9.1, 3.0))}, {"constrained": False}]
)
def test_sites_that_were_given_different_tasks_have_no_sum(
    change: Any, coordinator: Callable[..., Coordinator]
) -> None:
    """Each task by itself is fine; together they would single out one site: the others' rows could be made zero."""
    run = coordinator()
    run.agree()
    task = replace(run.job, scaling=FAIR)
    same = run.total(judge, At(w=np.zeros(3)), task)
    assert same.objective == pytest.approx(np.log(2))
    others = replace(task, **change)
    with raises_code("FP-OWNER-301"):
        run.total(judge, At(w=np.zeros(3)), {"north": task, "south": others, "coast": others})


def test_a_repeated_order_with_another_task_is_refused(coordinator: Callable[..., Coordinator]) -> None:
    run = coordinator()
    run.agree()
    task = replace(run.job, scaling=FAIR)
    run.total(judge, At(w=np.zeros(3)), task)
    run.round -= 1
    with raises_code("FP-OWNER-003"):
        run.total(judge, At(w=np.zeros(3)), replace(task, spread=0.5))
