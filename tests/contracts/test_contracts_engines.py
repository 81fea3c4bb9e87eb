"""What every engine promises: the bits of the in-process engine, whoever is slow, restarted or lost on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_cases import ENGINES, TOGETHER, Place, clinics_with, delayed, deployed, failing
from faults import bits, clinics, clinics_elsewhere, stop_at
from game_cases import GAMES
from marks import slow_but
from solver_cases import CASES, VARIANTS, Case, solved_plainly

import fedpact as fp
from fedpact.errors import DataError
from fedpact.solvers import Progress

METHODS = ("interior-point", "accelerated")


def engines(*names: str) -> Any:
    """Parametrize `place` by these engines."""
    chosen = [pytest.param(name, marks=ENGINES[name][1], id=name) for name in names]
    return pytest.mark.parametrize("place", chosen, indirect=True)


every_engine = engines(*ENGINES)
owners_elsewhere = engines(*(name for name in ENGINES if name not in TOGETHER))


@pytest.fixture(scope="module")
def flower_deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with deployed(tmp_path_factory.mktemp("flower")) as made:
        yield made


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    start, _ = ENGINES[request.param]
    with start(tmp_path_factory.mktemp("owners"), request) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda file: None)


def solve(problem: Any, method: str = "interior-point", **options: Any) -> fp.Solution:
    """Between organisations sums are secure by default; here they are when it is said."""
    return fp.solve(problem, method, **{"tol": 1e-5, "secure_sum": False, **options})


def at(exchange: int, act: Callable[[], None]) -> Callable[[Progress], None]:
    """A callback that acts once, after so many exchanges."""
    done: list[int] = []

    def callback(progress: Progress) -> None:
        if progress.rounds >= exchange and not done:
            done.append(progress.rounds)
            act()

    return callback


# ------------------------------------------------------------------------------------------------------- the same bits


@pytest.mark.parametrize("case", [*CASES, *slow_but(VARIANTS)], ids=lambda case: case.id)
@engines("bytes", "ray")
def test_every_method_gives_the_same_bits(place: Place, case: Case) -> None:
    """Behind bytes stands for all engines that move them; threads are in the contract of solvers."""
    expected = replace(solved_plainly(case), private=None)  # owners elsewhere keep their private variables
    assert bits(case.solve(engine=place)) == bits(expected)


@pytest.mark.parametrize("method", METHODS)
@every_engine
def test_open_sums_give_the_same_bits(place: Place, method: str) -> None:
    expected = solve(clinics(), method)
    assert expected.solved
    assert bits(solve(clinics(), method, engine=place)) == bits(expected)


@pytest.mark.parametrize("method", METHODS)
@every_engine
def test_secure_sums_give_the_same_bits(place: Place, method: str) -> None:
    expected = solve(clinics(), method, secure_sum=True)
    assert expected.solved
    assert bits(solve(clinics(), method, secure_sum=True, engine=place)) == bits(expected)


@pytest.mark.parametrize("method", METHODS)
@every_engine
def test_shares_built_at_their_owners_give_the_same_bits(place: Place, method: str) -> None:
    found, expected = solve(clinics_elsewhere(), method, engine=place), solve(clinics(), method)
    assert found.rounds == expected.rounds + 1  # the first: what is the problem like?
    assert bits(found, traffic=False, rounds=False) == bits(expected, traffic=False, rounds=False)


@every_engine
def test_games_of_owners_elsewhere_end_in_their_equilibria(place: Place) -> None:
    """All of them on one federation, and with the bits of owners in this process."""
    for game in GAMES:
        expected = solve(game().here, "auto", tol=1e-9)
        found = solve(game().elsewhere, "auto", tol=1e-9, engine=place)
        assert (found.status, found.method) == ("solved", "monotone-newton")
        assert found.rounds <= 10
        np.testing.assert_allclose(found.w, game().answer, atol=1e-7)
        assert bits(found, traffic=False, rounds=False) == bits(expected, traffic=False, rounds=False)


@engines("bytes", "ray")
def test_games_of_owners_elsewhere_without_matrices(place: Place) -> None:
    for game in GAMES:
        expected = solve(game().here, "ifeddr", tol=1e-8)
        found = solve(game().elsewhere, "ifeddr", tol=1e-8, engine=place)
        np.testing.assert_allclose(found.w, game().answer, atol=1e-6)
        np.testing.assert_array_equal(found.w, expected.w)


# ------------------------------------------------------------------------------------------------ what may go wrong


@every_engine
def test_stopped_and_resumed(place: Place, tmp_path: Path) -> None:
    stopped = solve(clinics(), engine=place, checkpoint=tmp_path, callbacks=[stop_at(4)])
    assert "interrupted" in stopped.reason
    assert bits(solve(clinics(), engine=place, checkpoint=tmp_path, resume=True)) == bits(solve(clinics()))


@every_engine
def test_a_slow_owner_is_asked_again_and_changes_no_bit(place: Place, tmp_path: Path) -> None:
    marker = tmp_path / "slept"
    slow = clinics_with(partial(delayed, marker, 2 * place.enough))
    found = solve(slow, engine=place, deadline=place.enough, retries=100)
    assert marker.exists()
    assert bits(found, traffic=False) == bits(solve(slow), traffic=False)


@every_engine
def test_an_owner_lost_on_the_way_is_named_and_back_after_a_resume(place: Place, tmp_path: Path) -> None:
    found = solve(
        clinics(), engine=place, checkpoint=tmp_path, retries=1, callbacks=[at(3, lambda: place.lose("clinic b"))]
    )
    assert found.status == "client_lost"
    assert found.reason.startswith("clinic b: ")
    assert str(tmp_path) in found.reason  # where the run is kept
    assert found.certificate.worst < float("inf")
    assert bits(solve(clinics(), engine=place, checkpoint=tmp_path, resume=True)) == bits(solve(clinics()))


@owners_elsewhere
@pytest.mark.parametrize("method", METHODS)
def test_an_owner_restarted_on_the_way_changes_no_bit(place: Place, method: str) -> None:
    restart = at(3, lambda: place.restart("clinic b"))
    found = solve(clinics(), method, engine=place, callbacks=[restart], retries=100)
    assert bits(found, traffic=False) == bits(solve(clinics(), method), traffic=False)


@every_engine
def test_an_error_of_an_owner_keeps_its_class_and_names_the_owner(place: Place) -> None:
    with pytest.raises(DataError) as caught:
        solve(clinics_with(failing), engine=place)
    assert str(caught.value).startswith("clinic b: ")
    told = "column 'age'" in str(caught.value)
    assert told != ("the site's own log says more" in str(caught.value))  # sites of other organisations keep the text
