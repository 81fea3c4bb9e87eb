from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedpact.errors import DataError
from fedpact_experiments.datasets import breast_cancer_wisconsin, find
from fedpact_experiments.datasets.folder import KNOWN


@pytest.fixture
def empty_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Neither FEDPACT_DATA nor the cache holds a file."""
    monkeypatch.setenv("FEDPACT_DATA", str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for place in (tmp_path / "given", tmp_path / "named", tmp_path / "cache" / "fedpact"):
        place.mkdir(parents=True)
    return tmp_path


def test_the_given_folder_comes_first_then_the_variable_then_the_cache(empty_world: Path) -> None:
    places = [empty_world / "cache" / "fedpact", empty_world / "named", empty_world / "given"]
    for place in places:
        (place / "rows.txt").write_text("1")
        assert find("rows.txt", empty_world / "given") == place / "rows.txt"


def test_without_a_cache_variable_the_home_folder_is_used(empty_world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(empty_world))
    cache = empty_world / ".cache" / "fedpact"
    cache.mkdir(parents=True)
    (cache / "rows.txt").write_text("1")
    assert find("rows.txt") == cache / "rows.txt"


def test_a_missing_file_is_named_with_the_places_and_the_remedy(empty_world: Path) -> None:
    with pytest.raises(DataError) as caught:
        find("adult.data", empty_world / "given")
    message = str(caught.value)
    for part in ("'adult.data'", "given", "named", "cache", "'Adult'", "FEDPACT_DATA", "--data"):
        assert part in message


def test_an_unknown_missing_file_has_a_remedy_too(empty_world: Path) -> None:
    with pytest.raises(DataError, match=r"'own\.csv' not found.*Get it from its publisher.*FEDPACT_DATA"):
        find("own.csv")


def test_every_known_file_has_its_checksum(data_folder: Path) -> None:
    assert [find(name, data_folder).relative_to(data_folder).as_posix() for name in KNOWN] == list(KNOWN)


def test_one_changed_byte_is_refused(data_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "breast-cancer-wisconsin.data"
    shutil.copyfile(data_folder / copy.name, copy)
    assert len(breast_cancer_wisconsin(tmp_path).y) == 695
    copy.write_bytes(b"2" + copy.read_bytes()[1:])
    with pytest.raises(DataError, match=r"SHA-256 is [0-9a-f]{64}, expected 81add7.*damaged.*Breast Cancer Wisconsin"):
        breast_cancer_wisconsin(tmp_path)
