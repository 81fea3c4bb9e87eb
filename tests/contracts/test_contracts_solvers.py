"""What `fp.solve` promises of every method, by its public surface alone: problems, engines, callbacks, Solutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import Fault, Faulty, bits, gone, stop_at
from marks import slow_but
from solver_cases import CASES, VARIANTS, Case, Example, solved_plainly
from vertical_cases import assert_certified

import fedpact as fp
from fedpact.solvers import METHODS, Progress


def each(cases: Sequence[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.id)


each_case = each(CASES)
each_case_and_variant = each([*CASES, *slow_but(VARIANTS)])
each_with_start = each([case for case in CASES if case.takes_start])
each_with_exchanges = each([case for case in CASES if case.exchanges])
each_elsewhere = each([case for case in [*CASES, *VARIANTS] if case.takes_start and case.exchanges])
#: How a solve may end that was stopped before it was done.
STOPPED = ("max_rounds", "interrupted")
#: By then every method has judged its start: keys for secure sums, a first look and the start itself are behind it.
STARTED = 4


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints need not outlive a power cut here."""
    monkeypatch.setattr("os.fsync", lambda file: None)


def assert_judged(example: Example, found: fp.Solution) -> None:
    """The certificate is that of the returned pair, by code that did not make it, and no judged point was better."""
    assert np.isfinite(found.w).all()
    assert np.isfinite(found.certificate.worst)
    if example.vertical:
        assert_certified(example.problem, found)
        return
    again = fp.certify(example.problem, found.w, found.multipliers, found.coupled_multiplier, found.private)
    for name in ("stationarity", "feasibility", "violation"):
        expected = pytest.approx(getattr(again, name), rel=1e-9, abs=1e-12)
        assert getattr(found.certificate, name) == expected, name
    if METHODS[found.method].feasible_first:
        # What is violated beyond the tolerance counts before the rest, and any point before the start.
        violated = [max(record.violations.values(), default=0.0) for record in found.history.outer[1:]]
        assert found.certificate.violation <= max(min(violated, default=np.inf), found.tol[1])
        return
    judged = [max(record.stationarity, record.feasibility) for record in found.history.outer]
    assert found.certificate.worst <= min(judged, default=np.inf)


def assert_lost(example: Example, found: fp.Solution, owner: str) -> None:
    """An owner is gone, so its prices are not known; the point is."""
    assert found.status == "client_lost"
    assert not found.solved
    assert owner in found.reason
    assert found.w.shape == example.w.shape
    assert np.isfinite(found.w).all()


def watch(case: Case, **options: Any) -> tuple[fp.Solution, list[Progress]]:
    seen: list[Progress] = []
    return case.solve(callbacks=[seen.append], **options), seen


def losing(exchange: int, owner: str, what: str) -> Fault:
    """One message of one owner is lost, once: that of this exchange, or of the next that it takes part in."""
    sent = []

    def fault(name: str, order: Any) -> str:
        if name != owner or order.round < exchange or sent:
            return ""
        sent.append(order)
        return what

    return fault


# ------------------------------------------------------------------------------------------------------------- answers


def test_every_method_is_on_the_list() -> None:
    assert {case.method for case in CASES} == set(METHODS)


@each_case
def test_solved_and_certified_and_the_known_optimum(case: Case) -> None:
    found, example = solved_plainly(case), case.example()
    assert found.status == "solved", found.reason
    assert found.method == case.method
    assert found.certificate.meets((case.tol, case.tol))
    assert_judged(example, found)
    np.testing.assert_allclose(found.w, example.w, atol=100 * case.tol)
    if example.multipliers is not None:
        prices = [*found.multipliers, found.coupled_multiplier]
        known = [*example.multipliers, *[[]] * (len(prices) - len(example.multipliers))]
        for ours, theirs in zip(prices, known, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=100 * case.tol)


@each_with_start
def test_start_at_the_solution(case: Case) -> None:
    example = case.example()
    found = case.solve(w0=solved_plainly(case).w)
    assert found.status == "solved", found.reason
    assert found.rounds <= case.few
    np.testing.assert_allclose(found.w, example.w, atol=100 * case.tol)


@each_case_and_variant
def test_two_runs_are_equal_bit_for_bit(case: Case) -> None:
    assert bits(case.solve(seed=3)) == bits(case.solve(seed=3))


@each_case_and_variant
def test_threads_give_the_same_bits(case: Case) -> None:
    assert bits(case.solve(engine="threads")) == bits(solved_plainly(case))


@each_elsewhere
def test_shares_that_only_their_owners_hold_give_the_same_bits(case: Case) -> None:
    """A RemoteProblem: the coordinator asks what the shares are like, in one exchange more."""
    problem = case.example().problem
    sources = {share.label: partial(_itself, share) for share in problem.shares}
    remote = fp.RemoteProblem(sources, problem.server, problem.regularizer)
    if problem.monotone or (problem.coupled_length and not METHODS[case.method].needs.coupled):
        with pytest.raises(fp.errors.FedpactError, match=r"only their owners hold|operator"):
            case.solve(remote)
        return
    expected = solved_plainly(case)
    more = {"max_rounds": case.options["max_rounds"] + 1} if "max_rounds" in case.options else {}
    found = case.solve(remote, **more)
    assert found.rounds == expected.rounds + 1
    assert found.w.tobytes() == expected.w.tobytes()
    assert found.certificate == expected.certificate
    assert [m.tobytes() for m in found.multipliers] == [m.tobytes() for m in expected.multipliers]


def _itself(share: fp.Share) -> fp.Share:
    return share


@each_with_exchanges
def test_secure_sums_give_the_same_answer(case: Case) -> None:
    if not case.secure:
        with pytest.raises(fp.errors.OptionError, match="secure_sum"):
            case.solve(secure_sum=True)
        return
    open_sums, secure_sums = case.solve(secure_sum=False), case.solve(secure_sum=True)
    assert secure_sums.status == open_sums.status
    if case.example().vertical and secure_sums.rounds > open_sums.rounds + 2:
        # Only the root of the sum of squares of the parties' slopes is seen on the way: some exchanges more.
        assert secure_sums.certificate.worst <= open_sums.certificate.worst
        return
    assert secure_sums.rounds == open_sums.rounds + 2
    np.testing.assert_allclose(secure_sums.w, open_sums.w, atol=1e-9)
    for ours, theirs in zip(secure_sums.multipliers, open_sums.multipliers, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


@each_case
def test_saved_and_loaded(case: Case, tmp_path: Path) -> None:
    found = solved_plainly(case)
    expected = replace(found, private=None, scores=None)  # neither is saved
    assert bits(fp.Solution.load(found.save(tmp_path / "answer"))) == bits(expected)


# --------------------------------------------------------------------------------------------------- what is told of it


@each_case
def test_progress_and_history_go_forward(case: Case) -> None:
    found, seen = watch(case)
    assert seen
    assert bits(found) == bits(solved_plainly(case))  # watching changes nothing
    for what in ("rounds", "bytes", "iteration"):
        told = [getattr(progress, what) for progress in seen]
        assert told == sorted(told), what
    assert all(progress.method == case.method for progress in seen)
    outer = found.history.outer
    assert outer
    for what in ("rounds", "bytes", "iteration"):
        written = [getattr(record, what) for record in outer]
        assert written == sorted(written), what
    assert len({record.iteration for record in outer}) == len(outer)
    assert outer[-1].rounds <= found.rounds
    assert all(np.isfinite([r.objective, r.stationarity, r.feasibility]).all() for r in outer)


@each_case
def test_the_answer_is_in_the_history(case: Case) -> None:
    found = solved_plainly(case)
    answer = (found.objective, found.certificate.stationarity, found.certificate.feasibility)
    judged = [(record.objective, record.stationarity, record.feasibility) for record in found.history.outer]
    if case.example().vertical:  # judged anew from the parties' own columns; before, by the root of a sum of squares
        parties = len(case.example().problem.names)
        near = [one for one in judged if one[::2] == pytest.approx(answer[::2], rel=1e-9, abs=1e-13)]
        assert any(answer[1] <= one[1] * (1 + 1e-9) + 1e-13 for one in near)
        assert any(one[1] <= np.sqrt(parties) * answer[1] * (1 + 1e-9) + 1e-13 for one in near)
    else:
        assert answer in judged


@each_with_exchanges
def test_the_exchanges_told_are_the_messages_counted(case: Case) -> None:
    found = solved_plainly(case)
    for traffic in found.communication.owners.values():
        assert 0 < traffic.messages_up == traffic.messages_down <= found.rounds


# ------------------------------------------------------------------------------------------------------- stopped early


@each_case
def test_ctrl_c_in_the_first_callback(case: Case) -> None:
    found = case.solve(callbacks=[stop_at(0)])
    assert found.status in STOPPED
    assert "interrupted" in found.reason
    assert_judged(case.example(), found)


@each_case
@pytest.mark.parametrize("limit", [8, 15])
def test_few_exchanges(case: Case, limit: int) -> None:
    found = case.solve(max_rounds=limit)
    assert found.status in ("solved", "max_rounds")
    assert found.rounds <= limit
    assert_judged(case.example(), found)
    assert found.solved == found.certificate.meets((case.tol, case.tol))


@each_case_and_variant
@pytest.mark.parametrize("when", slow_but(["at once", "early", "halfway"], "halfway"))
def test_stopped_and_resumed_to_the_same_bits(case: Case, when: str, tmp_path: Path) -> None:
    expected = solved_plainly(case)
    exchanges = {"at once": 0, "early": min(STARTED + 1, expected.rounds - 2), "halfway": expected.rounds // 2}[when]
    stopped = case.solve(checkpoint=tmp_path, callbacks=[stop_at(exchanges)])
    assert stopped.status in STOPPED
    assert_judged(case.example(), stopped)
    assert bits(case.solve(checkpoint=tmp_path, resume=True)) == bits(expected)


# --------------------------------------------------------------------------------------------------------- lost owners


@each_with_exchanges
def test_an_owner_lost_in_the_first_exchange(case: Case, tmp_path: Path) -> None:
    example = case.example()
    owner = example.problem.names[0]
    start = np.full(example.w.shape, 0.25) if case.takes_start else np.zeros(example.w.shape)
    options = {"w0": start} if case.takes_start else {}
    found = case.solve(engine=Faulty(gone(owner, 0)), on_failure="stop", **options)
    assert_lost(example, found, owner)
    np.testing.assert_array_equal(found.w, start)
    assert found.rounds == 1
    assert not found.history.outer
    assert found.certificate.worst == np.inf  # nobody has judged anything
    assert bits(fp.Solution.load(found.save(tmp_path / "lost"))) == bits(found)


@each_with_exchanges
@pytest.mark.parametrize("when", slow_but(["early", "halfway", "at the end"], "halfway"))
def test_an_owner_lost_later_and_back_after_a_resume(case: Case, when: str, tmp_path: Path) -> None:
    example, expected = case.example(), solved_plainly(case)
    owner = example.problem.names[-1]
    after = {"early": STARTED, "halfway": max(STARTED, expected.rounds // 2), "at the end": expected.rounds - 1}[when]
    found = case.solve(engine=Faulty(gone(owner, after)), on_failure="stop", checkpoint=tmp_path)
    assert_lost(example, found, owner)
    assert_a_judged_point(example, found)
    assert bits(case.solve(checkpoint=tmp_path, resume=True)) == bits(expected)


def assert_a_judged_point(example: Example, found: fp.Solution) -> None:
    """The certificate is of the returned point and stands in the history, as the best of those that can be returned."""
    certificate = found.certificate
    judged = [(record.objective, record.stationarity, record.feasibility) for record in found.history.outer]
    assert (found.objective, certificate.stationarity, certificate.feasibility) in judged
    if example.vertical:
        assert_certified(example.problem, found, by_squares=True)
        return
    assert certificate.worst == min(max(s, f) for _, s, f in judged)
    known = [None if np.isnan(m).any() else m for m in found.multipliers]
    again = fp.certify(example.problem, found.w, known, found.coupled_multiplier, found.private)
    assert certificate.violation == pytest.approx(again.violation, rel=1e-9, abs=1e-12)  # whatever the prices
    if all(price is not None for price in known):
        assert certificate.stationarity == pytest.approx(again.stationarity, rel=1e-9, abs=1e-12)


@each_with_exchanges
@pytest.mark.parametrize("what", slow_but(["order lost", "reply lost"], "reply lost"))
def test_a_message_lost_on_the_way_is_sent_again(case: Case, what: str) -> None:
    expected = solved_plainly(case)
    owner = case.example().problem.names[1]
    engine = Faulty(losing(min(5, expected.rounds), owner, what))
    found = case.solve(engine=engine)
    assert [loss for _, _, loss in engine.orders if loss] == [what]
    assert bits(found, traffic=False) == bits(expected, traffic=False)
