"""`fedpact bench attacks`: what succeeds without a rule, and is refused with it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("fedpact_experiments")

from fedpact_experiments.attacks.cost import costs
from fedpact_experiments.attacks.recover import PLANS, membership, outcomes

QUICK = [plan for plan in PLANS if plan.name in ("another task for the others", "weights of the owners")]


def test_no_row_of_one_owner_is_recovered_by_default(tmp_path: Path) -> None:
    strict = [plan for plan in QUICK if "least_share" not in plan.off]
    found = list(outcomes(tmp_path, strict))
    assert [one.rows for one in found] == [0, 0]
    assert [one.ended for one in found] == ["FP-OWNER-301", "FP-REFUSED-640"]


@pytest.mark.slow
def test_rules_cost_an_honest_run_one_exchange(tmp_path: Path) -> None:
    """The last, in which owners sign; and less than half of the bytes again, charters and signatures among them."""
    found = list(costs(tmp_path))
    for plain, masked, ruled in zip(found[::3], found[1::3], found[2::3], strict=True):
        assert plain.job == masked.job == ruled.job
        assert (masked.exchanges - plain.exchanges, ruled.exchanges - masked.exchanges) == (2, 1)
        assert plain.bytes < masked.bytes < ruled.bytes < 1.5 * plain.bytes


@pytest.mark.slow
def test_all_rows_of_one_owner_are_recovered_without_the_rules(tmp_path: Path) -> None:
    (free,) = outcomes(tmp_path, [plan for plan in QUICK if len(plan.off) == 2])
    assert free.rows == free.of == 80


@pytest.mark.slow
def test_where_a_person_was_treated_is_a_guess_by_default(tmp_path: Path) -> None:
    assert membership(tmp_path, "", 8.0, 4) == 0.5
