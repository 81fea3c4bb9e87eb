"""A vertical job at sites with policies: the model of files on one machine, prediction and evaluation, what is refused,
and what no message holds."""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from party_files import PARTIES, make_people, write_parties
from raising import raises_code
from site_files import SiteEngine, Sites
from vertical_sites import ALLOWED, WHO, write_site_job, write_vertical_sites

import fedpact as fp
from fedpact.cli.site_words import describe_job, describe_releases
from fedpact.errors import Refused
from fedpact.federation import Site
from fedpact.federation.audit import read_log
from fedpact.federation.identity import split_signed
from fedpact.federation.policy import read_policy
from fedpact.federation.releases import Releases
from fedpact.federation.wire import loads
from fedpact.jobs import evaluate_run, read_job, run_job
from fedpact.jobs.evaluation import score_party_run
from fedpact.jobs.site import audit_folder
from fedpact.problem import Piece
from fedpact.solvers import Solution


def test_sites_find_the_model_of_files_and_predict_with_their_pieces(tmp_path: Path) -> None:
    sites = write_vertical_sites(tmp_path)
    job = read_job(write_site_job(tmp_path / "job.toml", "127.0.0.1:1", sites))
    record = run_job(job, engine=SiteEngine(sites))
    assert record.status == "solved"
    people = make_people(0)
    answer = fp.solve(people.pooled(), "vertical-al", tol=1e-6)
    found = Solution.load(tmp_path / "run" / "solution.npz")
    for term in ("stationarity", "feasibility", "violation"):
        assert getattr(found.certificate, term) == pytest.approx(getattr(answer.certificate, term), abs=1e-9)
    assert found.objective == pytest.approx(answer.objective, abs=1e-9)

    # every party has its piece, in its own folder; together they score people whom nobody trained on
    pieces = {name: Piece.load(*(tmp_path / "sites" / f"{name} state" / "pieces").rglob("*.npz")) for name in PARTIES}
    fresh = make_people(1)
    intercept = float(answer.w[-1])
    expected = intercept + sum(pieces[name].scores(fresh.X[:, list(PARTIES[name])]) for name in PARTIES)
    own = tmp_path / "ids.csv"
    own.write_text("\n".join(["id", *(f"{WHO}{i:03d}" for i in range(len(fresh.y)))]))
    ids, scores = score_party_run(tmp_path / "run", job, {"server": own}, SiteEngine(sites))
    np.testing.assert_allclose(scores, expected[[int(one[-3:]) for one in ids]], atol=1e-6)
    numbered, again = score_party_run(tmp_path / "run", job, {}, SiteEngine(sites))
    assert numbered == [str(number) for number in range(1, len(fresh.y) + 1)]
    np.testing.assert_allclose(np.sort(again), np.sort(scores), atol=1e-9)

    # and the coordinator counts what they decide; the labels come from their holder
    measured = evaluate_run(tmp_path / "run", job, engine=SiteEngine(sites))
    right = (expected > 0) == (fresh.y > 0)
    assert measured.measures["server"]["accuracy"] == pytest.approx(right.mean())
    gap = np.logaddexp(0, -expected)
    held = [gap[(fresh.y > 0) & (fresh.sex == k)].mean() for k in (0, 1)]
    assert measured.bounds[0].value == pytest.approx(abs(held[0] - held[1]), abs=1e-6)

    # a party that does not take part counts as the mean of its columns, where the sites allow it; the gap is found anew
    some = intercept + sum(pieces[name].scores(fresh.X[:, list(PARTIES[name])]) for name in ("bank", "clinic"))
    ids, scores = score_party_run(tmp_path / "run", job, {"server": own}, SiteEngine(sites), absent=["shop"])
    np.testing.assert_allclose(scores, some[[int(one[-3:]) for one in ids]], atol=1e-6)
    measured = evaluate_run(tmp_path / "run", job, engine=SiteEngine(sites), absent=["shop"])
    gap = np.logaddexp(0, -some)
    held = [gap[(fresh.y > 0) & (fresh.sex == k)].mean() for k in (0, 1)]
    assert measured.bounds[0].value == pytest.approx(abs(held[0] - held[1]), abs=1e-6)
    with raises_code("FP-DATA-982", "", "bank"):
        evaluate_run(tmp_path / "run", job, engine=SiteEngine(sites), absent=["bank"])
    with raises_code("FP-OPTION-952", "", "mill"):
        score_party_run(tmp_path / "run", job, {}, SiteEngine(sites), absent=["mill"])


def test_no_message_holds_an_id_a_cell_or_a_partys_own_score(tmp_path: Path) -> None:
    """Under private alignment and secure sums; also not the label holder's, whose labels alone are sent."""
    sites = write_vertical_sites(tmp_path)
    job = read_job(write_site_job(tmp_path / "job.toml", "127.0.0.1:1", sites))
    engine = SiteEngine(sites)
    assert run_job(job, engine=engine).status == "solved"
    passed = b"".join(data for _, data in [*engine.sent, *engine.received])
    passed += (tmp_path / "run" / "messages.log").read_bytes()
    people = make_people(0)
    ids = [f"{WHO}{i:03d}".encode() for i in range(len(people.y))]
    hashes = [sha256(one).digest() for one in ids]
    assert [one for one in [*ids, *hashes, *(h.hex().encode() for h in hashes)] if one in passed] == []
    assert [x for x in people.X.ravel().tolist() if repr(x).encode() in passed] == []
    numbers = [people.X.ravel()]
    for name, columns in PARTIES.items():
        piece = Piece.load(*(tmp_path / "sites" / f"{name} state" / "pieces").rglob("*.npz"))
        X = people.X[:, list(columns)]
        scores = piece.scores(X)
        scaled = (X - piece.mean) / piece.scale
        numbers += [scores, piece.theta, scaled.ravel(), X @ piece.theta]
    secrets = np.concatenate(numbers)
    assert set(secrets.tolist()) <= set(floats_in(b"odd" + secrets.tobytes()))  # they would be found
    assert not set(secrets.tolist()) & set(floats_in(passed))


def floats_in(data: bytes) -> list[float]:
    """Whatever eight bytes in a row, beginning anywhere, are as a number."""
    padded = data + bytes(16)
    return [x for start in range(8) for x in np.frombuffer(padded, np.float64, len(data) // 8, start).tolist()]


@pytest.mark.parametrize(
    ("allow", "keys", "code"),
    [
        ({"ids": ["patient"]}, {}, "FP-REFUSED-025"),
        ({"sent": ["sex"]}, {}, "FP-REFUSED-026"),
        ({"label_to": list(PARTIES)[1:-1]}, {}, "FP-REFUSED-655"),
        ({"groups": []}, {}, "FP-REFUSED-023"),
        ({"features": ["x0"]}, {}, "FP-REFUSED-021"),
        ({"methods": ["fair-vfl"]}, {}, "FP-REFUSED-006"),
        ({"alignments": ["keyed-hash"]}, {}, "FP-REFUSED-061"),
        ({}, {"alignment": '"id"'}, "FP-REFUSED-061"),
    ],
)
def test_a_party_refuses_what_its_policy_does_not_allow(
    allow: dict[str, object], keys: dict[str, str], code: str, tmp_path: Path
) -> None:
    sites = write_vertical_sites(tmp_path, **allow)
    job = read_job(write_site_job(tmp_path / "job.toml", "127.0.0.1:1", sites, **keys))
    with raises_code(code):
        run_job(job, engine=SiteEngine(sites))


def test_the_label_holder_is_told_who_learns_its_labels(tmp_path: Path) -> None:
    """Finding 16: before it approves a job, and in the ledger afterwards; the others learn nothing of the kind."""
    sites = write_vertical_sites(tmp_path)
    others = ", ".join(name for name in PARTIES if name != "bank")
    words = f"slopes that tell {others} the label ill of everyone in common"
    run_job(read_job(write_site_job(tmp_path / "job.toml", "127.0.0.1:1", sites)), engine=SiteEngine(sites))
    for name in PARTIES:
        policy = read_policy(sites.policies[name])
        log = list(read_log(audit_folder(policy)))
        began = next(entry for entry in log if entry["event"] == "run")
        ledger = "\n".join(describe_releases(policy, Releases(log)))
        assert (f"down went {words}" in ledger) == (name == "bank")
        assert began["label_to"] == ([one for one in PARTIES if one != "bank"] if name == "bank" else [])
    asked = {"stated": job_of(sites), "owners": list(PARTIES)}
    assert f"what goes down: {words}" in "\n".join(describe_job(read_policy(sites.policies["bank"]), asked))
    assert words not in "\n".join(describe_job(read_policy(sites.policies["shop"]), asked))


def job_of(sites: Sites) -> dict[str, Any]:
    """The job as the charter of an order states it."""
    columns = {name: [f"x{number}" for number in numbers] for name, numbers in PARTIES.items()}
    return {"task": "vertical", "label": "ill", "label_at": "bank", "columns": columns}


def test_a_party_refuses_fewer_people_in_common_than_its_policy_asks_for(tmp_path: Path) -> None:
    sites = write_vertical_sites(tmp_path)
    policy = sites.policies["shop"]
    policy.write_text(policy.read_text().replace('"least_people" = 20', '"least_people" = 161'))
    job = read_job(write_site_job(tmp_path / "job.toml", "127.0.0.1:1", sites))
    with raises_code("FP-REFUSED-060", "shop"):
        run_job(job, engine=SiteEngine(sites))


@pytest.mark.parametrize(
    ("rule", "stated", "code", "party"),
    [
        ("rows", 161, "FP-REFUSED-030", "bank"),
        ("rows_per_class", 100, "FP-REFUSED-031", "bank"),  # who holds the label
        ("rows_per_group", 100, "FP-REFUSED-032", "bank"),
        ("rows_per_parameter", 60.0, "FP-REFUSED-033", "bank"),  # of its three columns
    ],
)
def test_rules_about_its_table_hold_before_a_party_lists_anyone(
    rule: str, stated: float, code: str, party: str, tmp_path: Path
) -> None:
    sites = write_vertical_sites(tmp_path)
    policy = sites.policies[party]
    policy.write_text(re.sub(rf'"{rule}" = .*', f'"{rule}" = {stated}', policy.read_text()))
    engine = SiteEngine(sites)
    with raises_code(code, party):
        run_job(read_job(write_site_job(tmp_path / "job.toml", "127.0.0.1:1", sites)), engine=engine)
    steps = {loads(split_signed(data)[1])["step"].rpartition(":")[2] for owner, data in engine.sent if owner == party}
    assert steps == {"blind_people"}


def test_a_job_that_lists_no_columns_of_a_party_is_refused_there(tmp_path: Path) -> None:
    """It would take every column of the table, which the policy does not name."""
    sites = write_vertical_sites(tmp_path)
    path = write_site_job(tmp_path / "job.toml", "127.0.0.1:1", sites)
    lines = [line for line in path.read_text().splitlines() if not line.startswith("shop = [")]
    path.write_text("\n".join(lines))
    with raises_code("FP-REFUSED-021", "shop"):
        run_job(read_job(path), engine=SiteEngine(sites))


def test_a_table_that_changes_between_alignment_and_training_is_an_error_without_rows(tmp_path: Path) -> None:
    sites = write_vertical_sites(tmp_path)
    table = tmp_path / "old" / "shop.csv"

    def change(owner: str, data: bytes, site: Site) -> bytes:
        message = loads(split_signed(data)[1])
        if owner == "shop" and message["step"].endswith(":introduce"):
            write_parties(tmp_path / "old", replace(make_people(0), X=make_people(3).X))
        return site.handle(data)

    engine = SiteEngine(sites, change)
    job = read_job(write_site_job(tmp_path / "job.toml", "127.0.0.1:1", sites))
    with raises_code("FP-DATA-414", "shop"):
        run_job(job, engine=engine)
    cells = [cell.encode() for line in table.read_text().splitlines()[1:] for cell in line.split(",")]
    failed = [reply for owner, reply in engine.received if owner == "shop"][-1]
    assert [cell for cell in cells if len(cell) > 3 and cell in failed] == []
    assert b"shop.csv" not in failed


def test_a_prediction_without_a_party_is_refused_beside_the_model_of_all(tmp_path: Path) -> None:
    """The difference of two predictions is what the party said about everyone."""
    sites = write_vertical_sites(tmp_path)
    for policy in sites.policies.values():
        policy.write_text(policy.read_text().replace('"similar_runs" = 1000', '"similar_runs" = 0'))
    job = read_job(write_site_job(tmp_path / "job.toml", "127.0.0.1:1", sites))
    run_job(job, engine=SiteEngine(sites))
    assert len(score_party_run(tmp_path / "run", job, {}, SiteEngine(sites))[0]) == len(make_people(1).y)
    with raises_code("FP-REFUSED-012"):
        score_party_run(tmp_path / "run", job, {}, SiteEngine(sites), absent=["shop"])


def test_keyed_hashes_use_the_key_that_the_sites_share(tmp_path: Path) -> None:
    sites = write_vertical_sites(tmp_path, alignments=["keyed-hash"])
    (tmp_path / "sites" / "ids.key").write_bytes(bytes(range(32)))
    for policy in sites.policies.values():
        policy.write_text(policy.read_text().replace("[site]", '[site]\nalignment_key = "ids.key"', 1))
    engine = SiteEngine(sites)
    job = write_site_job(tmp_path / "job.toml", "127.0.0.1:1", sites, alignment='"keyed-hash"')
    assert run_job(read_job(job), engine=engine).status == "solved"
    passed = b"".join(data for _, data in [*engine.sent, *engine.received])
    assert bytes(range(32)) not in passed
    assert WHO.encode() not in passed


def test_every_allowance_of_these_tests_is_needed(tmp_path: Path) -> None:
    """A site that allows a vertical task and says no more takes part in none."""
    for name in ALLOWED:
        sites = write_vertical_sites(tmp_path / name, **{name: []})
        job = read_job(write_site_job(tmp_path / name / "job.toml", "127.0.0.1:1", sites))
        with pytest.raises(Refused):
            run_job(job, engine=SiteEngine(sites))
