"""What may leave a table in all: rules about sums, questions, errors and runs, each with what succeeds without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raising import raises_code

pytest.importorskip("cryptography")
pytest.importorskip("fedpact_experiments")

from fedpact.data.encoding import Scaling
from fedpact.errors import Refused
from fedpact.federation.audit import read_log
from fedpact.federation.gate import told_fields
from fedpact.federation.messages import Reply, seal
from fedpact.federation.policy import SitePolicy
from fedpact.federation.rules import ABOUT_TABLE, Counts, check
from fedpact.problem import round_up
from fedpact.solvers.constrained.interior_point import Begin, begin
from fedpact.solvers.equations import Infer, infer_share
from fedpact.solvers.steps import At, Conclude, conclude, judge
from fedpact.tasks import Classification, Rows
from fedpact.tasks.requirements import Requirement
from fedpact_experiments.attacks.hospitals import Coordinator, Hospitals, write_hospitals, write_table

JOB = Classification(label="ill", columns=("age", "dose"), standardize=True)
FAIR = Scaling((60.0, 10.0), (60.0, 10.0), (9.0, 3.0))

POLICY = SitePolicy(name="north", data=Path("rows.csv"), state=Path("state"), key=Path("north.pem"))

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


def test_a_boundary_beside_a_single_row_is_refused(start: Start) -> None:
    """Slopes of smoothed errors are those of the rows next to the plane, the sharper the fewer."""
    recall = (Requirement(kind="recall", of="1", at_least=0.8),)
    rules = "[require]\nboundary_rows = 0\n[limit]\nmodel_size = 1e9"
    for text, spread, code in ((rules, 2e-3, ""), ("", 2e-3, "FP-REFUSED-653"), ("", 1.0, "")):
        run, _ = start(text, replace(JOB, constraints=recall))
        sharp = replace(run.job, scaling=FAIR, width=1.0, spread=spread, objective="errors")
        if code:
            with raises_code(code):
                run.total(judge, At(w=np.array([1.0, 0.6, 0.0])), sharp)
        else:
            assert np.any(run.total(judge, At(w=np.array([1.0, 0.6, 0.0])), sharp).gradient)


# ------------------------------------------------------------- finding 8: standard errors once, of the concluded model


def concluding(w: Any) -> Conclude:
    return Conclude(w=np.asarray(w, dtype=float), iteration=-1, coupled=np.zeros(0), ray=np.zeros(3))


def inferring(run: Coordinator, w: Any) -> Infer:
    lengths = dict.fromkeys(("server", *run.sites), 0)
    return Infer(
        w=np.asarray(w, dtype=float),
        prices=np.zeros(0),
        lengths=json.dumps(lengths),
        coupled=np.zeros(0),
        covariance="hc0",
    )


def test_standard_errors_are_told_once_of_a_model_that_was_concluded_with(start: Start) -> None:
    run, _ = start()
    task = replace(run.job, scaling=FAIR)
    with raises_code("FP-REFUSED-649"):
        run.ask(infer_share, inferring(run, [0.1, 0.1, 0.0]), task)
    run.ask(conclude, concluding([0.2, 0.1, 0.0]), task)
    run.ask(infer_share, inferring(run, [0.2, 0.1, 0.0]), task)
    with raises_code("FP-REFUSED-649"):
        run.ask(infer_share, inferring(run, [0.2, 0.1, 0.0]), task)


# ----------------------------------------------------------------------------------- finding 9: errors are answers, too


def test_a_run_is_over_after_a_few_errors(start: Start) -> None:
    """Each would tell whether the farthest value of a column is beyond a shift that the coordinator chooses."""
    run, hospitals = start()
    codes = []
    for guess in np.linspace(1e6, 2e6, 8):
        far = Scaling((60.0, 10.0), (60.0 - guess, 10.0), (1.0, 3.0))
        with pytest.raises(Refused) as refused:
            run.send("north", judge, run.stamp(At(w=np.zeros(3))), replace(run.job, scaling=far))
        codes.append(refused.value.code)
    assert codes == ["FP-REFUSED-639"] * 5 + ["FP-REFUSED-648"] * 3
    with raises_code("FP-REFUSED-648"):
        run.send("north", judge, run.stamp(At(w=np.zeros(3))), replace(run.job, scaling=FAIR))
    run.sites = hospitals.open()  # started again, it remembers
    with raises_code("FP-REFUSED-648"):
        run.send("north", judge, run.stamp(At(w=np.zeros(3))), replace(run.job, scaling=FAIR))


# ------------------------------------------------------------------- finding 10: what is told of one owner, in a month


def test_residuals_are_told_in_two_digits(start: Start) -> None:
    bound = replace(JOB, constraints=[{"kind": "loss", "at_most": 0.1, "of": "1"}])
    run, _ = start(job=bound)
    told = run.ask(conclude, concluding([0.3, -0.2, 0.4]), replace(run.job, scaling=FAIR))
    for one in told.values():
        assert one.kept.violation > 0.1
        assert one.kept.violation == float(f"{one.kept.violation:.1e}")


@pytest.mark.parametrize(("value", "rounded"), [(0.123, 0.13), (0.12, 0.12), (9.91e-5, 1e-4), (0.0, 0.0), (1e-3, 1e-3)])
def test_residuals_are_rounded_away_from_zero(value: float, rounded: float) -> None:
    assert round_up(value) == rounded
    assert round_up(-value) == -rounded


def test_numbers_of_a_month_are_counted_over_all_runs(start: Start) -> None:
    run, hospitals = start("[limit]\nquestions_a_month = 2")
    task = replace(run.job, scaling=FAIR)
    run.ask(conclude, concluding([0.2, 0.1, 0.0]), task)
    run.ask(conclude, concluding([0.3, 0.1, 0.0]), task)
    other = Coordinator(hospitals.open(), hospitals.key, JOB)
    other.agree()
    with raises_code("FP-REFUSED-650"):
        other.ask(conclude, concluding([0.4, 0.1, 0.0]), task)


def test_every_field_that_may_hold_a_number_counts() -> None:
    """Whatever its type: an integer told a loss to thirteen digits."""

    @dataclass(frozen=True, kw_only=True)
    class Odd(Reply):
        near: int
        levels: str
        rates: Any
        usable: bool
        dim: int

    odd = Odd(near=3, levels="a: 3", rates=np.zeros(2), usable=True, dim=3)
    assert told_fields(seal(odd)) == ["near", "levels", "rates"]


# ---------------------------------------------------- findings 11 and 12: runs that differ by a patient, or an owner


def test_two_nights_with_one_new_patient_in_between(start: Start) -> None:
    """The difference of two exact sums is the patient; of five it is the five of them together."""
    _, hospitals = start()
    for new, code in ((1, "FP-REFUSED-646"), (4, "FP-REFUSED-646"), (5, "")):
        X = np.vstack([hospitals.tables["north"], np.random.default_rng(new).normal(size=(new, 2))])
        y = np.append(hospitals.labels["north"], np.ones(new))
        write_table(hospitals.files["north"].parent / "north.csv", X, y)
        night = Coordinator(hospitals.open(), hospitals.key, JOB)
        if code:
            with raises_code(code, "north: "):
                night.agree()
        else:
            night.agree()
    kept = next((hospitals.files["north"].parent / "north state" / "rows").iterdir())
    assert kept.stat().st_mode & 0o077 == 0
    assert not any(cell in kept.read_text() for cell in (f"{x!r}" for x in X[:, 0].tolist()))


def test_sums_over_several_sets_of_owners(tmp_path: Path) -> None:
    """{a, b, c} + {a, d, e} - {b, c, d, e} is twice a, though no two of these sets differ by one."""
    owners = tuple("abcde")
    hospitals = write_hospitals(tmp_path, owners=owners)
    sites = hospitals.open()
    Coordinator({name: sites[name] for name in "abc"}, hospitals.key, JOB).agree()
    with raises_code("FP-REFUSED-647", "a: "):
        Coordinator({name: sites[name] for name in "ade"}, hospitals.key, JOB).agree()
    with raises_code("FP-REFUSED-647", "b: "):
        Coordinator({name: sites[name] for name in "bcde"}, hospitals.key, JOB).agree()
    other = replace(JOB, label="dose", columns=("age",))
    Coordinator({name: sites[name] for name in "ade"}, hospitals.key, other).agree()


# --------------------------------------------------------------------------------- budgets, and what a relay may spend


def test_the_budget_of_a_table_is_of_all_runs(start: Start) -> None:
    run, hospitals = start("[limit]\nreleases = 5")
    task = replace(run.job, scaling=FAIR)
    for _ in range(3):
        run.ask(judge, At(w=np.zeros(3)), task)
    with raises_code("FP-REFUSED-651"):
        run.ask(judge, At(w=np.zeros(3)), task)
    with raises_code("FP-REFUSED-651"):
        Coordinator(hospitals.open(), hospitals.key, JOB).agree()


def test_an_order_that_is_repeated_costs_nothing(start: Start) -> None:
    """A relay that sends the same bytes again and again would spend what the owner answers in a run."""
    run, hospitals = start()
    task = replace(run.job, scaling=FAIR)
    order = run.stamp(concluding([0.2, 0.1, 0.0]))
    first = run.send("north", conclude, order, task)
    for _ in range(20):
        again = run.send("north", conclude, order, task)
    assert np.array_equal(again.sums, first.sums)
    log = list(read_log(hospitals.files["north"].parent / "north state" / "audit"))
    assert [entry["step"] for entry in log if entry["event"] == "answer"].count("fedpact.solvers.steps:conclude") == 1


def test_strangers_do_not_fill_the_log(start: Start) -> None:
    run, hospitals = start()
    for _ in range(1000):
        run.sites["north"].handle(b"x" * 100)
    log = list(read_log(hospitals.files["north"].parent / "north state" / "audit"))
    refused = [entry for entry in log if entry["event"] == "refuse"]
    assert len(refused) == 22
    assert refused[-1]["today"] == 1000


# ------------------------------------------------------------------------------------------------- DataSHIELD's rules


@pytest.mark.parametrize("levels", [41, 27])
def test_columns_of_many_levels_are_refused(levels: int, start: Start) -> None:
    """At most 40, and a third of the rows: 80 here."""
    job = replace(JOB, columns=("age",), categories={"age": tuple(map(str, range(levels)))}, standardize=False)
    assert job.count(Rows(np.zeros((80, levels)), np.zeros(80, dtype=int))).levels == levels
    with raises_code("FP-REFUSED-652"):
        check(POLICY, ABOUT_TABLE, Counts(80, levels=levels))
    check(POLICY, ABOUT_TABLE, Counts(80, levels=26))


def test_a_third_as_many_parameters_as_rows() -> None:
    check(POLICY, ABOUT_TABLE, Counts(81, parameters=27))
    with raises_code("FP-REFUSED-033"):
        check(POLICY, ABOUT_TABLE, Counts(80, parameters=27))
