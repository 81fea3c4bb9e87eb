"""The task "vertical" at one party: which columns it brings, its ids, and what it keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from raising import raises_code

from fedpact.errors import OptionError
from fedpact.tasks import PartySource, Vertical
from fedpact.tasks.parties import piece_file

TASK = Vertical(label="ill", label_at="bank", group="sex", max_gap=0.1)
ROWS = np.array([2, 0, 1])


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write(tmp_path / "shop.csv", "id,note,visits,town", "a,x,1,Rio", "b,y,2,Oslo", "c,z,6,Rio")


def test_a_party_brings_its_numbers_and_its_categories_scaled_by_itself(table: Path) -> None:
    task = Vertical(label="ill", label_at="bank", categories={"town": ["Oslo", "Rio"]})
    party = PartySource("shop", table)(task, ROWS)
    assert party.columns == ("visits", "town=Oslo", "town=Rio")
    visits = np.array([6.0, 1.0, 2.0])
    assert np.allclose(party.X[:, 0], (visits - 3) / np.std(visits))
    assert party.X[:, 1:].tolist() == [[0, 1], [0, 1], [1, 0]]  # levels as they are
    assert np.allclose(party.curvature, 2 / 3)  # the paper's (1/n) |theta|^2


def test_a_number_among_text_is_a_mistake_and_not_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "shop.csv", "id,visits", "a,1", "b,two", "c,3")
    with raises_code("FP-DATA-003", "", "visits", "line 3"):
        PartySource("shop", path)(TASK, ROWS)


def test_a_constant_column_says_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "shop.csv", "id,visits,open", "a,1,7", "b,2,7", "c,3,7")
    party = PartySource("shop", path)(TASK, ROWS)
    assert party.X[:, 1].tolist() == [0, 0, 0]
    assert party.scale[1] == 1


def test_labels_and_groups_are_with_their_holder_only(tmp_path: Path) -> None:
    bank = write(tmp_path / "bank.csv", "id,income,ill,sex", "a,1,0,1", "b,2,1,0", "c,3,1,1")
    party = PartySource("bank", bank)(TASK, ROWS)
    assert party.columns == ("income",)
    assert party.labels.tolist() == [1, 0, 1]
    assert party.groups.tolist() == [[1, 1, 0]]  # one list an attribute
    with raises_code("FP-DATA-920", "", "ill"):
        PartySource("shop", bank).people(TASK)


def test_whole_numbers_of_a_parquet_file_are_ids(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    ids = [7, 2**53, 2**53 + 1]  # the last two are one float
    parquet.write_table(pyarrow.table({"id": ids, "visits": [1.0, 2.0, 4.0]}), tmp_path / "shop.parquet")
    assert list(PartySource("shop", tmp_path / "shop.parquet").people(TASK).ids) == ids


def test_the_model_without_constraints_is_not_kept(table: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    source = PartySource("shop", table, pieces=tmp_path / "pieces")
    assert source(TASK, ROWS).keep.endswith("shop.npz")
    assert source(replace(TASK, constrained=False), ROWS).keep == ""


def test_files_of_pieces_differ_and_stay_in_their_folder() -> None:
    assert piece_file("owner 1") == "owner 1.npz"
    names = [piece_file(party) for party in ("a/b", "a_b", "../b", "b" * 300, "Ärzte")]
    assert len(set(names)) == len(names)
    assert all(Path(name).name == name and len(name) < 60 for name in names)


def test_a_model_that_gives_everyone_one_class_is_named() -> None:
    assert TASK.one_class({"recall": 1.0, "specificity": 0.0}) == "ill = 1"
    assert TASK.one_class({"recall": 0.0, "specificity": 1.0}) == "ill = 0"
    assert TASK.one_class({"recall": 1.0, "specificity": 0.5}) == ""


@pytest.mark.parametrize(
    ("about", "code"),
    [
        ({"label": ""}, "FP-OPTION-920"),
        ({"regularization": -1.0}, "FP-OPTION"),
        ({"max_gap": -0.1}, "FP-OPTION"),
        ({"alignment": "luck"}, "FP-OPTION-922"),
        ({"on_missing": "guess"}, "FP-OPTION-922"),
        ({"columns": {"shop": ["visits", "visits"]}}, "FP-OPTION-054"),
    ],
)
def test_a_task_that_contradicts_itself(about: dict[str, object], code: str) -> None:
    stated = {"label": "ill", "group": "sex", "max_gap": 0.1, **about}
    with pytest.raises(OptionError) as raised:
        Vertical(**stated)  # type: ignore[arg-type]
    assert raised.value.code.startswith(code)
