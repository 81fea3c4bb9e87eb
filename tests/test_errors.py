"""Every error has a stable code: which ones there are, and that raise sites keep to them."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedpact import errors
from fedpact.errors import CODES, DataError, FedpactError, OwnerError, OwnerLost, class_of

SOURCE = Path(errors.__file__).parent
FINE = re.compile(r"FP(-[A-Z]+)?-\d{3}")
CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FedpactError)]


def raised() -> Iterator[tuple[str, str, str]]:
    """Every fine code in the source: where it is, the class that is raised with it (empty if unknown), the code."""
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name in ("errors.py", "error_codes.py"):
            continue
        tree = ast.parse(path.read_text())
        classes: dict[ast.AST, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                classes |= {word.value: node.func.id for word in node.keywords if word.arg == "code"}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and FINE.fullmatch(node.value):
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", classes.get(node, ""), node.value


def test_every_class_has_a_code_of_its_own() -> None:
    assert len(CLASSES) == 9
    assert len({kind.code for kind in CLASSES}) == len(CLASSES)
    for kind in CLASSES:
        assert kind.code in CODES
        assert kind("words").code == kind.code
        assert class_of(kind.code) is kind
        assert class_of(f"{kind.code}-123") is kind


@pytest.mark.parametrize("code", ["", "FP-NEW-001", "os:system", "FP-DATA-003-x"])
def test_a_code_of_no_class_is_an_owners_error(code: str) -> None:
    assert class_of(code) is OwnerError


def test_an_error_in_another_place_is_the_same_error() -> None:
    error = OwnerLost("gone", code="FP-LOST-001", column="age", key="bound", rows=3)
    placed = error.within("clinic b")
    assert type(placed) is OwnerLost
    assert str(placed) == "clinic b: gone"
    assert (placed.code, placed.column, placed.key, placed.rows) == ("FP-LOST-001", "age", "bound", 3)


def test_an_error_keeps_its_code_between_processes() -> None:
    error = pickle.loads(pickle.dumps(DataError("line 3", code="FP-DATA-003", column="age")))
    assert (str(error), error.code, error.column, error.rows) == ("line 3", "FP-DATA-003", "age", None)


def test_every_code_in_the_source_is_known_and_fits_its_class() -> None:
    for where, kind, code in raised():
        assert code in CODES, f"{where}: say in CODES what {code} means"
        if kind:
            assert class_of(code).__name__ == kind, f"{where}: {code} is given to a {kind}"


def test_a_code_is_raised_in_one_place() -> None:
    """So that it leads to that place; and CODES lists none that nobody raises."""
    places: dict[str, list[str]] = {code: [] for code in CODES if FINE.fullmatch(code)}
    for where, _, code in raised():
        places.setdefault(code, []).append(where)
    assert {code: found for code, found in places.items() if len(found) != 1} == {}


def bare() -> Iterator[str]:
    """Where an error of ours is built without a code of its own."""
    names = {kind.__name__ for kind in CLASSES}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            built = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
            if built and not any(word.arg == "code" for word in node.keywords):
                yield f"{path.relative_to(SOURCE)}:{node.lineno}"


def test_every_error_has_a_code_of_its_own() -> None:
    assert list(bare()) == []


def test_a_code_says_what_happened_and_what_to_do() -> None:
    halves = {code: text.partition("; ") for code, text in CODES.items() if FINE.fullmatch(code)}
    assert [code for code, (what, _, remedy) in halves.items() if not what or not remedy] == []
