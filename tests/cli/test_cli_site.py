"""`fedpact site`: what an administrator types, from the key to the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from raising import raises_code
from site_files import LENIENT, SiteEngine, to_toml, write_sites

import fedpact as fp
from fedpact.cli.site import site
from fedpact.federation.identity import Identity
from fedpact.federation.policy import read_policy
from fedpact.tasks import NeymanPearson

pytest.importorskip("cryptography")

OWNERS = ("north", "south", "coast")


def fedpact_site(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(site, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


def test_a_key_is_made_once_and_its_public_half_printed(tmp_path: Path) -> None:
    first = fedpact_site("key", tmp_path / "site.pem").strip()
    assert fedpact_site("key", tmp_path / "site.pem").strip() == first == Identity.load(tmp_path / "site.pem").public
    assert (tmp_path / "site.pem").stat().st_mode & 0o077 == 0


def test_the_example_is_a_policy_that_allows_nothing(tmp_path: Path) -> None:
    fedpact_site("init", tmp_path / "site.toml")
    policy = read_policy(tmp_path / "site.toml")
    assert policy.tasks == policy.features == ()
    assert policy.secure_sums
    fedpact_site("key", policy.key)
    with raises_code("FP-OPTION-625"):
        fedpact_site("check", tmp_path / "site.toml")
    policy.data.write_text("age,y\n")
    told = fedpact_site("check", tmp_path / "site.toml")
    assert Identity.load(policy.key).public in told
    assert policy.digest in told
    assert "[require] owners: 3" in told
    with raises_code("FP-OPTION-624"):
        fedpact_site("init", tmp_path / "site.toml")


def test_peers_may_come_from_a_roster_that_somebody_signed(tmp_path: Path) -> None:
    keys = {name: fedpact_site("key", tmp_path / f"{name}.pem").strip() for name in (*OWNERS, "registry")}
    roster = tmp_path / "roster.toml"
    roster.write_text("".join(f'{name} = "{keys[name]}"\n' for name in OWNERS))
    stated: dict[str, dict[str, Any]] = {
        "site": {"name": "north", "data": "rows.csv", "state": "state", "key": "north.pem", "roster": "roster.toml"}
    }
    stated["site"]["roster_by"] = keys["registry"]
    policy = tmp_path / "site.toml"
    policy.write_text(to_toml(stated))
    with raises_code("FP-OPTION-616"):
        read_policy(policy)
    fedpact_site("sign", roster, "--key", tmp_path / "north.pem")
    with raises_code("FP-OPTION-617"):
        read_policy(policy)
    fedpact_site("sign", roster, "--key", tmp_path / "registry.pem")
    assert read_policy(policy).peers == {"south": keys["south"], "coast": keys["coast"]}
    roster.write_text(roster.read_text().replace(keys["south"], keys["registry"]))
    with raises_code("FP-OPTION-617"):
        read_policy(policy)
    policy.write_text(to_toml({**stated, "peers": {"south": keys["south"]}}))
    with raises_code("FP-OPTION-615"):
        read_policy(policy)


def test_a_job_waits_for_a_person_and_the_log_tells_it_all(tmp_path: Path) -> None:
    tables = {}
    for seed, owner in enumerate(OWNERS):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(30, 1))
        lines = [f"{x!r},{int(x + rng.normal() > 0)}" for x in X[:, 0].tolist()]
        tables[owner] = tmp_path / f"{owner}.csv"
        tables[owner].write_text("\n".join(["age,y", *lines, ""]))
    rules = {**LENIENT, "require": {**LENIENT["require"], "approval": True}}
    sites = write_sites(tmp_path / "sites", tables, features=["age"], rules=rules)

    def solve() -> fp.Solution:
        job = NeymanPearson(bound=0.6, label="y", columns=("age",), owners=3)
        problem = fp.RemoteProblem(dict.fromkeys(OWNERS), task=job)
        with fp.Session(SiteEngine(sites), identity=sites.key, roster=sites.roster, retries=0) as session:
            return fp.solve(problem, "interior-point", session=session)

    for owner in OWNERS:
        file = sites.policies[owner]
        with raises_code("FP-REFUSED-010", f"{owner}: "):
            solve()
        waiting = fedpact_site("approve", file)
        digest = waiting.split()[0]
        assert len(digest) == 64
        for words in ("study asks; north, south, coast take part", "features age; label y", "at most 0.6 at each of"):
            assert words in waiting
        assert len(waiting.splitlines()) < 12
        everything = fedpact_site("approve", file, "--all")
        assert everything.startswith(waiting.rstrip())
        assert 'columns = ["age"]' in everything
        with raises_code("FP-OPTION-627"):
            fedpact_site("approve", file, "zz")
        assert digest in fedpact_site("approve", file, digest[:12])
        assert fedpact_site("approve", file) == "no job is waiting\n"
    assert solve().solved
    file = sites.policies["north"]
    entries = [json.loads(line) for line in fedpact_site("log", file, "--json").splitlines()]
    kinds = [entry["event"] for entry in entries]
    assert kinds[:3] == ["await approval", "refuse", "approve"]
    assert {"run", "answer"} <= set(kinds)
    assert len(fedpact_site("log", file, "--refused").splitlines()) == kinds.count("refuse")
    budget, *runs, said = fedpact_site("ledger", file).splitlines()
    everything = [entry for entry in entries if entry["event"] == "answer"]
    last = [entry for entry in entries if entry["event"] == "run"][-1]["run"]
    answers = len([entry for entry in everything if entry["run"] == last])
    assert f"Budget of 30 days: {len(everything)} of 1000000 answers" in budget
    assert f"asked by study, about y: {answers} answers, " in said
    assert "all of them sums under masks over 3 owners" in said
    assert "1 answer with numbers about us alone: feasibility (1), multiplier (1), private (1), violation (1)" in said
    assert len(fedpact_site("ledger", file, "--full").splitlines()) == 2 + len(runs) + len(everything)
    log = next((tmp_path / "sites" / "north state" / "audit").glob("*.jsonl"))
    log.write_bytes(log.read_bytes().replace(b'"masked": true', b'"masked": false', 1))
    assert "FP-CHECKPOINT-610" in fedpact_site("log", file, code=1)
