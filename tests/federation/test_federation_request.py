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
from fedpact.solvers.constrained.interior_point import Begin, begin
from fedpact.solvers.steps import At, judge
from fedpact.tasks import TASKS, Classification, Task
from fedpact.tasks.base import found_fields, listed
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


# ------------------------------------------------------------------------ finding 7: what runs is what was approved

APPROVED = Classification(
    label="ill", columns=("age",), standardize=True, constraints=[{"kind": "loss", "at_most": 0.5, "of": "1"}]
)
AGE = Scaling((60.0,), (60.0,), (9.0,))


@pytest.mark.parametrize(
    "change",
    [
        {"label": "dose", "classes": ("0", "1")},
        {"columns": ("age", "dose")},
        {"constraints": ({"kind": "loss", "at_most": 9.0, "of": "1"},)},
        {"constraints": ()},
        {"classes": ("0", "1", "2")},
        {"categories": {"age": tuple(map(str, range(77)))}},
        {"standardize": False},
        {"missing": "mean"},
        {"regularization": 0.0},
        {"l1": 1.0},
        {"class_weight": {"0": 1.0, "1": 1.1}},
        {"owners_weigh": "rows"},
        {"sample_weight": "dose"},
        {"intercept": False},
        {"holdout": 0.4},
        {"split": 3},
        {"owners": 2},
        {"evaluating": True},
        # found by a fit, but not in this job, or not in this range
        {"resample": 1},
        {"total_rows": 240.0},
        {"allowance": 1.2},
        {"strictness": 0.0},
        {"width": -1.0},
        {"spread": 0.0},
        {"centre": (1e9, 0.0)},
        {"tighter": 1e6},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_field_that_is_not_the_jobs_is_refused(change: Any, coordinator: Callable[..., Coordinator]) -> None:
    run = coordinator(APPROVED)
    run.agree()
    task = replace(run.job, scaling=AGE)
    assert run.total(judge, At(w=np.zeros(2)), task).objective == pytest.approx(np.log(2))
    asked = {**task.stated(), **{name: listed(value) for name, value in change.items()}}
    with raises_code("FP-REFUSED-052"):
        run.ask(judge, At(w=np.zeros(2)), dict.fromkeys(run.sites, asked))


@pytest.mark.parametrize("kind", TASKS.values(), ids=lambda kind: kind.name)
def test_what_a_fit_may_find_is_declared_at_the_field(kind: type[Task]) -> None:
    """Whatever says which rows are trained on, and by what they are judged, is none of it."""
    fixed = {"label", "columns", "categories", "classes", "groups", "group", "bound", "constraints", "confidence"}
    fixed |= {"holdout", "split", "method", "owners", "evaluating", "owners_weigh", "class_weight", "sample_weight"}
    assert found_fields(kind).keys() & fixed == set()


@pytest.mark.parametrize(
    "scaling",
    [
        Scaling((60.0, 10.0), (60.0, 10.0), (1e200, 3.0)),
        Scaling((60.0, 10.0), (60.0, 10.0), (9.0, 1e-9)),
        Scaling((60.0, 10.0), (60.0, -1e12), (9.0, 3.0)),
        Scaling((60.0,), (60.0,), (9.0,)),
        Scaling((60.0, 10.0), (60.0, 10.0), (9.0, 0.0)),
    ],
)
def test_scales_far_from_the_sites_own_are_refused(scaling: Scaling, coordinator: Callable[..., Coordinator]) -> None:
    """Also where the job itself states them: its rows would be all zero, or all but one."""
    for job in (JOB, replace(JOB, scaling=scaling)):
        run = coordinator(job)
        with raises_code("FP-REFUSED-639"):
            run.agree()
            run.ask(judge, At(w=np.zeros(3)), replace(run.job, scaling=scaling))


def test_a_method_that_the_job_does_not_state_is_refused(coordinator: Callable[..., Coordinator]) -> None:
    run = coordinator(more={"method": {"name": "accelerated", "memory": 3}})
    run.agree()
    order = Begin(w=np.zeros(3), coupled=np.zeros(0), judged_coupled=np.zeros(0), holders=3)
    with raises_code("FP-REFUSED-643"):
        run.ask(begin, order, replace(run.job, scaling=FAIR))


# ------------------------------------------------------------ finding 2: no owner stands alone in a sum of several


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ({"owners_weigh": {"north": 1.0, "south": 1e-12, "coast": 1e-12}}, "FP-REFUSED-640"),
        ({"owners_weigh": {"north": 1.0, "south": 1.0, "coast": 0.1}}, "FP-REFUSED-640"),
        ({"class_weight": {"0": 1e-12, "1": 1.0}}, "FP-REFUSED-640"),
        (
            {"constraints": [{"kind": "loss", "at_most": {"north": 1e-3, "south": 1e6, "coast": 1e6}}]},
            "FP-REFUSED-641",
        ),
    ],
)
def test_no_owner_is_singled_out_by_weights_or_bounds(
    job: dict[str, Any], code: str, coordinator: Callable[..., Coordinator]
) -> None:
    run = coordinator(replace(JOB, **job))
    with raises_code(code):
        run.agree()


def test_weights_that_differ_a_little_are_fine(coordinator: Callable[..., Coordinator]) -> None:
    run = coordinator(replace(JOB, owners_weigh={"north": 1.0, "south": 2.0, "coast": 1.5}))
    run.agree()
    assert run.total(judge, At(w=np.zeros(3)), replace(run.job, scaling=FAIR)).objective == pytest.approx(np.log(2))
