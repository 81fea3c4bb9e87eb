"""Solution.save and Solution.load: bit for bit, and clear words for a file that is damaged or foreign."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fedpact as fp
from fedpact.cones import Nonnegative, SecondOrder
from fedpact.errors import FedpactError
from fedpact.functions import Affine, Quadratic


@pytest.fixture(scope="module")
def answer() -> fp.Solution:
    ball = fp.Constraint(Affine(np.vstack([np.zeros(2), -np.eye(2)]), [-1.0, 0.0, 0.0]), SecondOrder(3))
    shares = [
        fp.Share(Quadratic(np.eye(2), [-1.0, -2.0]), ball, name="hôpital"),
        fp.Share(Quadratic(np.eye(2), [0.1, -2.0]), coupled=Affine([[1.0, 0.0]], [-0.3])),
        fp.Share(Quadratic(np.eye(2)), coupled=Affine([[0.0, 0.1]])),
    ]
    server = fp.Share(None, fp.Constraint(Affine([[1.0, -5.0]]), Nonnegative(1)))
    return fp.solve(fp.FederatedProblem(shares, server), "proximal-al", tol=1e-4)


def test_round_trip(answer: fp.Solution, tmp_path: Path) -> None:
    assert answer.solved
    assert len(answer.history.inner) > 3
    loaded = fp.Solution.load(answer.save(tmp_path / "run.npz"))
    assert loaded.w.tobytes() == answer.w.tobytes()
    assert loaded.w.dtype == np.float64
    assert [m.tobytes() for m in loaded.multipliers] == [m.tobytes() for m in answer.multipliers]
    assert loaded.coupled_multiplier.tobytes() == answer.coupled_multiplier.tobytes()
    assert answer.coupled_multiplier.size == 1
    for name in ("certificate", "history", "communication", "status", "reason", "objective", "tol", "method"):
        assert getattr(loaded, name) == getattr(answer, name), name
    assert loaded.rounds == answer.rounds
    assert loaded.solved
    assert repr(loaded) == repr(answer)


def test_the_owners_who_conflict_are_kept(tmp_path: Path) -> None:
    def bound(sign: float) -> fp.Constraint:
        return fp.Constraint(Affine([[sign]], [1.0]), Nonnegative(1))  # w <= -1 and w >= 1

    shares = [fp.Share(Quadratic(np.eye(1)), bound(s), name=n) for s, n in ((1.0, "low"), (-1.0, "high"))]
    answer = fp.solve(fp.FederatedProblem(shares))
    assert answer.status == "infeasible"
    loaded = fp.Solution.load(answer.save(tmp_path / "run"))
    assert loaded.conflict == answer.conflict == ("low", "high")
    assert loaded.status == "infeasible"


def test_the_file_gets_its_suffix_and_keeps_its_name(answer: fp.Solution, tmp_path: Path) -> None:
    assert answer.save(tmp_path / "run") == tmp_path / "run.npz"
    assert answer.save(str(tmp_path / "run.npz")) == tmp_path / "run.npz"
    # a dot in the name is part of it: bounds of 0.05 and 0.1 must not end in one file
    assert answer.save(tmp_path / "bound_0.05") != answer.save(tmp_path / "bound_0.1")


def test_nothing_is_pickled(answer: fp.Solution, tmp_path: Path) -> None:
    with np.load(answer.save(tmp_path / "run"), allow_pickle=False) as file:
        meta = json.loads(str(file["meta"]))
        assert all(file[name].dtype != object for name in file.files)
    assert meta["status"] == "solved"


def _truncated(whole: bytes) -> bytes:
    return whole[: len(whole) // 2]


def _flipped(whole: bytes) -> bytes:
    middle = len(whole) // 2
    return whole[:middle] + bytes(255 - b for b in whole[middle : middle + 64]) + whole[middle + 64 :]


@pytest.mark.parametrize("damage", [_truncated, _flipped, lambda whole: b"", lambda whole: b"not a zip at all"])
def test_a_damaged_file_is_named(answer: fp.Solution, tmp_path: Path, damage: object) -> None:
    path = answer.save(tmp_path / "run")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FedpactError, match=r"run\.npz"):
        fp.Solution.load(path)


@pytest.mark.parametrize(
    "arrays",
    [
        {"w": np.zeros(3)},
        {"meta": np.array("{}")},
        {"meta": np.array("[1, 2]")},
        {"meta": np.array("no json")},
        {"meta": np.array(json.dumps({"format": "fedpact-solution-0"}))},
        {"meta": np.array(json.dumps({"format": "fedpact-solution-1"}))},
        {"meta": np.array(json.dumps({"format": "fedpact-solution-1", "multipliers": 0})), "w": np.zeros(1)},
        {"meta": np.array([None])},
    ],
    ids=["no-meta", "no-format", "list", "no-json", "old-format", "bare", "incomplete", "pickled"],
)
def test_a_foreign_file_is_named(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    path = tmp_path / "foreign.npz"
    np.savez(path, **arrays)
    with pytest.raises(FedpactError, match=r"foreign\.npz"):
        fp.Solution.load(path)


def test_another_kind_of_file_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "single.npy", np.zeros(3))
    with pytest.raises(FedpactError, match=r"single\.npy"):
        fp.Solution.load(tmp_path / "single.npy")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FedpactError, match=r"nothing\.npz"):
        fp.Solution.load(tmp_path / "nothing.npz")
