"""What a site tells of itself alone, and what its policy makes of that: jobs run through three sites with gates."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import clinics
from gated_sites import COLUMNS, NAMES, GatedSites
from raising import raises_code
from scipy.optimize import least_squares

import fedpact as fp
from fedpact.cli.run import show
from fedpact.errors import CODES, DataError, Refused
from fedpact.federation import Largest, Order, Reply, Summed, add_up, read_record
from fedpact.federation.audit import read_log
from fedpact.federation.failure import Failure
from fedpact.federation.identity import Identity, sign_message, split_signed
from fedpact.federation.messages import rebuild, seal
from fedpact.federation.remote import read_reply
from fedpact.federation.rules import Counts
from fedpact.federation.wire import dumps, name_of, to_tree
from fedpact.fitting.agreement import Finished, measure
from fedpact.fitting.result import Fit
from fedpact.jobs import read_job
from fedpact.jobs.running import make_record, write
from fedpact.problem import round_to_rows, round_up
from fedpact.problem.certificate import TOGETHER
from fedpact.report.page import markdown, page
from fedpact.report.record import Record
from fedpact.report.sections import report
from fedpact.report.wording import verdict
from fedpact.solvers.steps import At, Conclude, conclude, judge
from fedpact.tasks import FileSource, GroupFairness, NeymanPearson, Task, group_fairness_share

pytest.importorskip("cryptography")

TABLE: dict[str, Any] = {"label": "ill", "columns": COLUMNS, "standardize": True}
RECALL = NeymanPearson(bound=0.5, **TABLE)
PARITY: dict[str, Any] = {"bound": 0.1, "group": "sex", "groups": ("f", "m"), **TABLE}


def fit(sites: GatedSites, task: Task = RECALL, **options: Any) -> Fit:
    with fp.Session(sites, identity=sites.coordinator, roster=sites.roster) as session:
        return fp.fit(task, dict.fromkeys(NAMES), session, **options)


# ------------------------------------------------------------------------------------------------- counts of the table


def test_a_job_that_every_policy_allows_is_solved(tmp_path: Path) -> None:
    assert fit(GatedSites(tmp_path)).solved


@pytest.mark.parametrize(
    ("code", "rules", "ill"),
    [
        ("FP-REFUSED-030", {"rows": 81}, 30),
        ("FP-REFUSED-031", {"rows_per_class": 5}, 4),
        ("FP-REFUSED-033", {"rows_per_parameter": 27.0}, 30),  # three numbers, 80 rows
    ],
)
def test_a_table_with_too_few_rows_is_refused_before_any_step_runs(
    code: str, rules: dict[str, Any], ill: int, tmp_path: Path
) -> None:
    sites = GatedSites(tmp_path, {"east": ill}, **rules)
    with pytest.raises(Refused) as caught:
        fit(sites)
    first = "east" if ill == 4 else "north"
    assert caught.value.code == code
    assert str(caught.value) == f"{first}: {code}: {CODES[code]}; the site's own log says more"  # the code, no count
    answered = [entry["step"] for entry in read_log(tmp_path / "east" / "audit") if entry["event"] == "answer"]
    rooms = {step.partition(":")[0] for step in answered}
    assert rooms == {"fedpact.federation.secure_sum", "fedpact.federation.owner"}  # keys, and that the run has ended


def test_groups_count_where_a_constraint_rests_on_them(tmp_path: Path) -> None:
    with raises_code("FP-REFUSED-032"):
        fit(GatedSites(tmp_path / "a", rows_per_group=41), GroupFairness(**PARITY))
    sites = GatedSites(tmp_path / "b", {"south": 30}, rows_per_group=16)  # 40 rows a group, 15 of them ill
    assert fit(sites, GroupFairness(**PARITY)).solution.status == "solved"
    with raises_code("FP-REFUSED-032"):
        fit(GatedSites(tmp_path / "c", rows_per_group=16), GroupFairness(parity="equal_opportunity", **PARITY))


def test_counts_are_those_of_the_file(tmp_path: Path) -> None:
    GatedSites(tmp_path)
    source = FileSource("north", tmp_path / "north.csv")
    assert source.counts(RECALL.stated()) == Counts(80, (50, 30), (), 3)
    assert source.counts(GroupFairness(**PARITY)) == Counts(80, (50, 30), (40, 40), 3)


def test_what_cannot_be_counted_is_refused(tmp_path: Path) -> None:
    """A share that a site holds as it is, and a task that does not count its rows."""
    rules = {"rows": 0, "rows_per_class": 0, "rows_per_group": 0, "rows_per_parameter": 0.0}
    for name, allowed in (("strict", False), ("open", True)):
        sites = GatedSites(tmp_path / name, **(rules if allowed else {}))
        for owner, site in sites.sites.items():
            path = tmp_path / name / f"{owner}.csv"
            site.hold(_Uncounted(owner, path))
        if allowed:
            assert fit(sites).solved
        else:
            with raises_code("FP-REFUSED-030"):
                fit(sites)


class _Uncounted:
    def __init__(self, owner: str, path: Path) -> None:
        self._source = FileSource(owner, path)

    def __call__(self, task: Any) -> Any:
        return self._source(task)

    def found(self, task: Any) -> Any:
        return self._source.found(task)


# --------------------------------------------------------------------------------------------------------- small cells

OF_CLASS = {"protected rows", "loss", "recall", "specificity"}
OF_GROUPS = {f"{what} of group {g}" for what in ("rows", "accuracy", "positive rate", "recall") for g in (0, 1)}


def test_scores_in_small_bins_are_counted_with_their_neighbours(tmp_path: Path) -> None:
    """No site tells a bin with one to four of its rows, and all rows are told."""
    binned = fit(GatedSites(tmp_path / "open", small_cells=0), curves=True).curves
    found = fit(GatedSites(tmp_path / "ruled", small_cells=5), curves=True, trade_off=True)
    assert binned is not None
    assert found.curves is not None
    for exact, merged in ((binned.negative, found.curves.negative), (binned.positive, found.curves.positive)):
        assert sum(merged) == sum(exact)
        assert all(count == 0 or count >= 5 for count in merged)
        assert any(0 < count < 5 for count in exact)
    assert len(found.trade_off) == 7


def test_a_site_that_has_told_enough_ends_the_trade_off_and_nothing_else(tmp_path: Path) -> None:
    """Every solve ends with a certificate, to which a site adds a number of its own: a question."""
    told = fit(GatedSites(tmp_path / "all", questions=90), curves=True, trade_off=True)
    assert len(told.trade_off) == 7
    answers = [entry for entry in read_log(tmp_path / "all" / "north" / "audit") if entry["event"] == "answer"]
    signed = next(place for place, entry in enumerate(answers) if entry["step"].endswith(":attest"))
    needed = sum(bool(entry["told"]) for entry in answers[: signed + 1])
    found = fit(GatedSites(tmp_path / "few", questions=needed), curves=True, trade_off=True)
    assert found.solved
    assert found.evidence is not None
    assert found.curves == told.curves  # sums alone are no question
    assert [one.allowance for one in found.trade_off] == [1.0]
    assert any("FP-REFUSED-041" in note for note in found.solution.history.notes)


@pytest.mark.parametrize("ill", [3, 77])  # 77 of 80: what is told of them tells of the other three
def test_rates_on_few_rows_are_withheld(ill: int, tmp_path: Path) -> None:
    few = {"tables": {"east": ill}, "rows_per_class": 0, "effective_rows": 0, "boundary_rows": 0}
    told = fit(GatedSites(tmp_path / "open", small_cells=0, **few))
    assert told.measures["east"]["protected rows"] == ill
    assert {"recall", "specificity"} <= told.measures["east"].keys()

    found = fit(GatedSites(tmp_path / "ruled", small_cells=5, **few))
    assert found.solved
    assert found.measures["east"].keys() == {"rows", "accuracy"}
    assert set(found.withheld["east"]) == OF_CLASS
    assert np.isnan(found.values["east"]).all()
    assert found.measures["north"].keys() == {"rows", "accuracy"} | OF_CLASS
    assert found.withheld["north"] == ()
    log = [entry for entry in read_log(tmp_path / "ruled" / "east" / "audit") if "measure" in entry.get("step", "")]
    assert set(json.loads(log[-1]["withheld"])) == OF_CLASS


def test_groups_are_withheld_together(tmp_path: Path) -> None:
    """Forty rows each, one of them ill: the recall of either group, and the values, which might rest on these rows."""
    few = {"tables": {"east": 2}, "rows_per_class": 0, "rows_per_group": 0, "effective_rows": 0, "boundary_rows": 0}
    found = fit(GatedSites(tmp_path / "a", **few), GroupFairness(**PARITY))
    assert set(found.withheld["east"]) == {"recall of group 0", "recall of group 1"}
    found = fit(GatedSites(tmp_path / "b", small_cells=41, **few), GroupFairness(**PARITY))
    assert set(found.withheld["north"]) == OF_GROUPS
    assert found.measures["north"].keys() == {"rows", "accuracy"}


def test_a_rate_over_no_rows_is_as_silent_as_one_over_few() -> None:
    """Were it left out, its absence would tell that there is nobody."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2))
    group = np.arange(20) % 2
    answers = []
    for label in (0, 1):
        y = np.zeros(20, dtype=int)
        y[0] = label
        share = group_fairness_share(X, y, group, max_gap=0.1, owners=1, name="east")
        reply = measure(share, None, Finished(w=np.ones(2)))[1]
        answers.append(reply.withhold(5))
        assert ("recall of group 0" in reply.withhold(0).told()) == bool(label)
        assert "recall of group 1" not in reply.withhold(0).told()
    assert answers[0].withheld == answers[1].withheld == '["recall of group 0", "recall of group 1"]'


def test_a_recall_can_be_asked_of_whom_withholds_it(tmp_path: Path) -> None:
    """All that leaves it about its decisions is a part of a sum: how many owners miss a bound."""
    sites = GatedSites(tmp_path, {"east": 3}, rows_per_class=0, effective_rows=0, boundary_rows=0, model_size=1e9)
    found = fit(sites, NeymanPearson(min_recall=0.8, **TABLE))
    assert found.solved
    assert {"recall", "recall of ill = 1"} <= set(found.withheld["east"])
    assert not {"recall", "recall of ill = 1"} & found.measures["east"].keys()
    assert found.measures["north"]["recall"] >= 0.8


def test_numbers_are_rounded_to_what_their_rows_carry(tmp_path: Path) -> None:
    exact = fit(GatedSites(tmp_path / "open", small_cells=0)).measures["north"]
    rounded = fit(GatedSites(tmp_path / "ruled")).measures["north"]
    assert rounded["loss"] != exact["loss"]
    assert rounded["loss"] == float(f"{exact['loss']:.2g}")
    assert {name: rounded[name] for name in rounded if name != "loss"} == {n: exact[n] for n in exact if n != "loss"}


@pytest.mark.parametrize(
    ("value", "rows", "told"),
    [
        (2 / 3, 30, 2 / 3),  # twenty of thirty
        (0.123456, 30, 0.12),
        (0.123456, 100, 0.123),
        (0.123456, 1000, 0.1235),
        (-4.5678e-4, 80, -4.6e-4),  # by how much a bound is kept: small numbers stay small
        (30.0, 30, 30.0),
        (0.0, 5, 0.0),
    ],
)
def test_rounding(value: float, rows: int, told: float) -> None:
    assert round_to_rows(value, rows) == told


def test_a_number_without_its_rows_is_withheld() -> None:
    about = {"rows": fp.Measure.count(40), "surprise": 0.25}
    share = fp.Share(fp.functions.Quadratic(np.eye(2)), measures=lambda w: about)
    reply = measure(share, None, Finished(w=np.zeros(2)))[1]
    assert reply.withhold(0).told() == {"rows": 40.0, "surprise": 0.25}
    assert reply.withhold(5).told() == {"rows": 40.0}
    assert json.loads(reply.withhold(5).withheld) == ["surprise"]
    again = pickle.loads(pickle.dumps(fp.Measure(0.5, 10, 4)))
    assert (again, again.rows, again.cell) == (0.5, 10, 4)


def test_counts_in_errors_obey_the_rule() -> None:
    error = DataError("", code="FP-DATA-003", rows=33)
    assert Failure.of(error, None, 5).rows == 20
    assert Failure.of(error, None, 34).rows == 0


def test_withheld_is_written_wherever_numbers_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Terminal, run folder and report."""
    sites = GatedSites(tmp_path, {"east": 3}, rows_per_class=0, effective_rows=0, boundary_rows=0)
    found = fit(sites, compare=True)
    owners = "[owners]\n" + "".join(f'{name} = "{name}.csv"\n' for name in NAMES)
    (tmp_path / "job.toml").write_text(
        f'task = "neyman_pearson"\nlabel = "ill"\nfeatures = ["age", "dose"]\nbound = 0.5\n{owners}'
    )
    record = make_record(read_job(tmp_path / "job.toml"), found, "gated", "2026-01-01T00:00:00", 1.0)
    (tmp_path / "run").mkdir()
    write(tmp_path / "run", found, record, tmp_path / "job.toml")
    read = Record.load(tmp_path / "run")
    assert read.measured == record.measured
    assert [one.withheld for one in read.bounded] == [False, True, False]
    told = {one.owner: one for one in read.measured}
    assert "recall of ill = 1" in told["east"].withheld
    assert "recall of ill = 1" in told["north"].numbers
    assert json.loads((tmp_path / "run" / "certificate.json").read_text())["constraints"][1]["value"] == "withheld"
    show(record)
    printed = capsys.readouterr().out
    lines = [line.strip() for line in printed.splitlines()]
    assert [line.count("withheld") for line in lines if line.startswith("east")] == [2, 2]
    for text in (page(report(read)), markdown(report(read))):
        assert "withheld" in text
    assert verdict(read).good


# ------------------------------------------------------------------------------------------- what is told during a run

HIDDEN = ("feasibility", "violation", "far_violation", "change", "part")


@pytest.mark.parametrize("method", ["interior-point", "accelerated", "proximal-al"])
def test_an_ordinary_run_tells_numbers_of_one_owner_at_its_end_only(method: str, tmp_path: Path) -> None:
    far = {"effective_rows": 0, "model_size": 1e9} if method == "proximal-al" else {}  # it looks at points far away
    sites = GatedSites(tmp_path, **far)
    found = fit(sites, method=method, compare=True)
    assert found.solved
    for name in NAMES:
        told = [entry for entry in read_log(tmp_path / name / "audit") if entry["event"] == "answer" and entry["told"]]
        steps = [entry["step"].partition(":")[2] for entry in told]
        assert set(steps) <= {"introduce", "conclude", "measure", "attest"}
        assert steps.count("conclude") == steps.count("measure") == 2  # with the constraints, and without
        assert len(steps) <= 7
        assert len(steps) < found.communication.rounds / 3
    record = found.solution.history.outer[-1]
    assert record.violations.keys() == {TOGETHER}
    assert found.solution.certificate.violations.keys() == set(NAMES)
    assert found.solution.certificate.feasibility <= round_up(record.feasibility)
    assert record.feasibility <= np.sqrt(3) * found.solution.certificate.feasibility + 1e-15


@pytest.mark.parametrize("method", ["interior-point", "accelerated", "proximal-al"])
def test_residuals_are_not_in_what_the_coordinator_receives(method: str, tmp_path: Path) -> None:
    record = tmp_path / "messages"
    shares = [fp.Share(clinic.objective, clinic.constraint, name=clinic.name) for clinic in clinics().shares]
    problem = fp.FederatedProblem(shares, regularizer=clinics().regularizer)
    fp.solve(problem, method, tol=1e-3, secure_sum=True, record=record)
    read: dict[str, int] = {}
    for message in read_record(record):
        for name in HIDDEN if "from" in message else ():
            if message["content"]["kept"].get(name) is not None:
                read[message["type"]] = read.get(message["type"], 0) + 1
    assert read == {"fedpact.solvers.steps:Concluded": 2 * len(shares)}  # feasibility and violation, once each


def test_the_root_of_the_squares_stands_for_the_largest() -> None:
    kind = Residual(size=0.0, loss=0.0)
    clear = add_up([Residual(size=size, loss=1.0) for size in (3.0, 0.0, 4.0)])
    assert (clear.total.size, clear.total.loss) == (4.0, 3.0)
    assert [reply.size for reply in clear] == [3.0, 0.0, 4.0]
    sealed = [seal(replace(kind, size=size), most=1e6) for size in (3.0, 0.0, 4.0)]
    assert all(one.kept.size is None for one in sealed)
    total = sum(one.sums for one in sealed)
    kept = [one.kept for one in sealed]
    assert rebuild(Residual, sealed[0].shapes, total, kept, masked=True).size == 5.0
    alone = [seal(replace(kind, size=size), most=1e6).sums for size in (0.0, 0.1, 0.0)]
    assert rebuild(Residual, sealed[0].shapes, sum(alone), kept, masked=True).size == 0.1
    assert seal(replace(kind, size=1e300), most=1e6).sums[1] == 1e12


@dataclass(frozen=True, kw_only=True)
class Residual(Reply):
    size: Largest[float]
    loss: Summed[float]


def test_violations_of_any_size_fit_into_a_secure_sum() -> None:
    """A start far out: its violation counts as the largest that fits."""
    square = 2 * fp.functions.Quadratic(np.eye(2)) - 1.0
    ball = fp.Constraint(square, fp.cones.Nonnegative(1))
    shares = [fp.Share(fp.functions.Quadratic(np.eye(2), [-1.0, 0.0]), ball) for _ in range(3)]
    found = fp.solve(fp.FederatedProblem(shares), "accelerated", w0=np.full(2, 1e8), secure_sum=True, max_rounds=8)
    assert found.status != "client_lost"
    assert 1e11 < found.history.outer[0].violations[TOGETHER] < 1e13


# ----------------------------------------------------------------------------------------------------------- the oracle


class Oracle:
    """A coordinator that asks one site for its own numbers at points of its choice, under a job that it allows."""

    def __init__(self, sites: GatedSites, bound: float) -> None:
        self.site = sites.sites["east"]
        self.identity = Identity.load(sites.coordinator)
        self.task = replace(NeymanPearson(bound=bound, label="ill", columns=COLUMNS), owners=3).stated()
        self.rounds = 0

    def ask(self, step: Any, order: Order) -> Any:
        self.rounds += 1
        order = replace(order, run="oracle", round=self.rounds)
        charter = {"run": "oracle", "owners": list(NAMES), "job": self.task}
        entries = {"owner": "east", "step": name_of(step), "order": to_tree(order), "task": self.task}
        data = dumps({**entries, "charter": charter})
        reply = split_signed(self.site.handle(sign_message(self.identity, "order", data)))[1]
        return read_reply("east", step, order, reply)

    def loss(self, w: Any) -> float:
        """The mean loss on the ill rows at w, from the violation of a bound that is smaller than any loss."""
        sealed = self.ask(judge, At(w=np.asarray(w)))
        return float(sealed.kept.violation) + self.task["bound"]


def recover_rows(oracle: Oracle, guess: Any) -> Any:
    """The rows of the class from as many answers as they have numbers, and more: mean log(1 + exp(-x'w)) at points."""
    rng = np.random.default_rng(1)
    points = rng.normal(size=(40, 3)) * 3
    seen = np.array([oracle.loss(w) for w in points])

    def miss(flat: Any) -> Any:
        rows = np.column_stack([flat.reshape(-1, 2), np.ones(flat.size // 2)])
        return np.logaddexp(0, -rows @ points.T).mean(axis=0) - seen

    return least_squares(miss, guess.ravel(), xtol=1e-15, ftol=1e-15, gtol=1e-15).x.reshape(-1, 2)


def test_rows_are_found_by_an_oracle_and_not_through_the_gate(tmp_path: Path) -> None:
    """Three ill people: forty constraint values give their cells; a policy answers none of these questions."""
    weak = {
        "secure_sums": False,
        "questions": 10**6,
        "small_cells": 0,
        "rows_per_class": 0,
        "effective_rows": 0,
        "boundary_rows": 0,
    }
    sites = GatedSites(tmp_path / "open", {"east": 3}, **weak)
    table = np.genfromtxt(tmp_path / "open" / "east.csv", delimiter=",", skip_header=1, usecols=(0, 1, 2))
    truth = table[table[:, 2] == 1][:, :2]
    rng = np.random.default_rng(0)
    found = recover_rows(Oracle(sites, 1e-9), truth + 0.3 * rng.normal(size=truth.shape))
    np.testing.assert_allclose(found[np.argsort(found[:, 0])], truth[np.argsort(truth[:, 0])], atol=1e-6)

    for rule, code in (
        ({"secure_sums": True}, "FP-REFUSED-007"),
        ({"questions": 12}, "FP-REFUSED-041"),
        ({"rows_per_class": 5}, "FP-REFUSED-031"),
        ({"values": {"bound": {"least": 0.05}}}, "FP-REFUSED-024"),
    ):
        sites = GatedSites(tmp_path / code, {"east": 3}, **{**weak, **rule})
        with raises_code(code):
            recover_rows(Oracle(sites, 1e-9), truth)


@pytest.mark.parametrize("step", [measure, conclude])
def test_the_final_looks_are_no_oracle(step: Any, tmp_path: Path) -> None:
    """What is told at the end, asked for again and again: the default policy answers a dozen times."""
    sites = GatedSites(tmp_path, secure_sums=False)
    oracle = Oracle(sites, 0.5)
    order: Order = Finished(w=np.zeros(3))
    if step is conclude:
        order = Conclude(w=np.zeros(3), iteration=-1, coupled=np.zeros(0), ray=np.zeros(3))
    with raises_code("FP-REFUSED-041"):
        for _ in range(40):
            oracle.ask(step, order)
    assert oracle.rounds == 13
