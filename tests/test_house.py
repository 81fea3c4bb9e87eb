"""The rules of the house, kept by code: who may import whom, clean tools, light import, no empty test."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedpact

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedpact"
SOURCES = sorted(SOURCE.rglob("*.py"))
EXPERIMENTS = sorted((ROOT / "experiments" / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

#: What each room may import besides itself, `errors` and `types`; None means everything.
ALLOWED: dict[str, set[str] | None] = {
    "error_codes": set(),
    "errors": {"error_codes"},
    "types": set(),
    "watching": set(),
    "notebook": set(),
    "cones": set(),
    "functions": {"watching"},
    "federation": {"watching"},
    "data": set(),
    "postprocess": set(),
    "alignment": set(),
    "spreadsheet": set(),
    "statistics": {"spreadsheet"},
    "prox": {"cones"},
    "problem": {"cones", "functions", "notebook", "prox"},
    "solvers": {"watching", "problem", "federation", "functions", "notebook", "prox", "cones", "statistics"},
    "engines": {"federation"},
    "engines/flower/app": None,  # programs that stand above the engine: they run jobs
    "engines/flower/submit": None,
    "tasks": {"problem", "functions", "cones", "prox", "data", "alignment", "federation", "statistics"},
    "report": {"solvers", "problem", "federation", "tasks", "statistics"},
    "fitting": {
        "alignment",
        "data",
        "federation",
        "functions",
        "notebook",
        "problem",
        "solve",
        "solvers",
        "statistics",
        "tasks",
    },
    "jobs": None,
    "estimators": None,
    "cli": None,
    "preparation": {"federation", "problem", "solvers"},
    "comparison": None,
    "reduction": {"problem", "solvers"},
    "rescaling": {"problem", "solvers"},
    "rescue": {"federation", "problem", "solvers"},
    "posing": {"preparation", "problem", "reduction", "rescaling", "solvers"},
    "solve": None,
    "__init__": None,
}


def room_of(path: Path) -> str:
    """The first name below fedpact: a folder, or a file without its suffix; programs of Flower are their own room."""
    place = path.relative_to(SOURCE).with_suffix("")
    return str(place) if str(place) in ALLOWED else place.parts[0]


def _runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below, except the body of `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in child.orelse:
                yield other
                yield from _runtime_nodes(other)
            continue
        yield child
        yield from _runtime_nodes(child)


def rooms_imported(source: str, package: list[str]) -> set[str]:
    """The rooms a file imports at run time; `package` holds the names above it, such as ["fedpact", "cones"]."""
    modules: list[str] = []
    for node in _runtime_nodes(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = [*above, *(node.module or "").split(".")]
            modules += [".".join(part for part in [*base, alias.name] if part) for alias in node.names]
    parts = [module.split(".") for module in modules]
    # `import fedpact` itself is the front door, which imports everything.
    return {names[1] if len(names) > 1 else "__init__" for names in parts if names[0] == "fedpact"}


def violations(source: str, room: str, package: list[str]) -> set[str]:
    allowed = ALLOWED[room]
    return set() if allowed is None else rooms_imported(source, package) - allowed - {room, "errors", "types"}


def test_imports_go_down_only() -> None:
    found = {}
    for path in SOURCES:
        room = room_of(path)
        assert room in ALLOWED, f"{room} is a new room: say in ALLOWED what it may import"
        package = ["fedpact", *path.relative_to(SOURCE).parts[:-1]]
        found[path] = violations(path.read_text(), room, package)
    assert {path: rooms for path, rooms in found.items() if rooms} == {}


@pytest.mark.parametrize(
    ("room", "source", "found"),
    [
        ("cones", "from fedpact.functions import Affine", {"functions"}),
        ("cones", "def late():\n    import fedpact.solvers.run as run", {"solvers"}),
        ("cones", "from ..problem import Share", {"problem"}),
        ("cones", "from .. import problem", {"problem"}),
        ("cones", "from . import base\nfrom .base import Cone\nfrom fedpact.errors import ProblemError", set()),
        ("cones", "import fedpact", {"__init__"}),
        ("solvers", "from fedpact import engines, problem", {"engines"}),
        ("solvers", "from fedpact.report.tables import table", {"report"}),
        ("engines", "from fedpact.problem import Share", {"problem"}),
        (
            "tasks",
            "if TYPE_CHECKING:\n    from fedpact.prox import Prox\nelse:\n    from fedpact.cli import main",
            {"cli"},
        ),
        ("tasks", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fedpact.prox import Prox", set()),
        ("cli", "from fedpact.tasks import exact", set()),
    ],
)
def test_the_import_rule_catches(room: str, source: str, found: set[str]) -> None:
    assert violations(source, room, ["fedpact", room]) == found


def test_the_library_does_not_know_its_experiments() -> None:
    found = [str(path) for path in SOURCES if "fedpact_experiments" in path.read_text()]
    assert found == []


@pytest.mark.xdist_group("tools")  # groups come first: mypy takes long, and should not be what the others wait for
@pytest.mark.parametrize(
    "tool",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], pytest.param(["mypy"], marks=pytest.mark.slow)],
    ids=["lint", "format", "types"],
)
def test_tools_run_clean(tool: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *tool], cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


HEAVY = {"sklearn", "matplotlib", "cvxpy", "rich", "ray", "flwr", "torch", "jax", "pandas", "pyarrow", "mlflow"} | {
    "tensorboardX"
}


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import fedpact", HEAVY | {"click"}),
        # with --help: what the script `fedpact` does; the commands of other packages are named, not imported
        ("from fedpact.cli.main import main; main()", HEAVY | {"fedpact_experiments"}),
    ],
    ids=["import", "help"],
)
def test_import_is_light(code: str, heavy: set[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-c", code, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    lines = [line.split("|") for line in done.stderr.splitlines() if line.startswith("import time:")]
    loaded = {parts[2].strip().split(".")[0] for parts in lines}
    assert {"fedpact", "numpy"} <= loaded
    assert loaded & heavy == set()


def test_estimators_are_imported_when_they_are_asked_for() -> None:
    pytest.importorskip("sklearn", reason="needs the extra 'sklearn'")
    code = "import sys, fedpact; fedpact.NeymanPearsonClassifier; print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == "True"


def test_the_public_surface_is_small_and_real() -> None:
    assert len(fedpact.__all__) <= 18
    assert len(set(fedpact.__all__)) == len(fedpact.__all__)
    assert [name for name in fedpact.__all__ if not hasattr(fedpact, name)] == []
    assert {"NeymanPearsonClassifier", "FairClassifier", "FairVerticalClassifier"} <= set(fedpact.__all__)


# ------------------------------------------------------------------------------------------------- tests that can fail


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func).rsplit(".", 1)[-1]


def _asserts(function: ast.AST, helpers: dict[str, ast.FunctionDef], seen: frozenset[str] = frozenset()) -> bool:
    """Does it assert, expect an error, or call a function of its file that does?"""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = _called(node)
            if name in ("raises", "raises_code", "warns") or name.startswith("assert_"):
                return True
            if name in helpers and name not in seen and _asserts(helpers[name], helpers, seen | {name}):
                return True
    return False


def empty_tests(source: str) -> list[str]:
    functions = {n.name: n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)}
    return [name for name, f in functions.items() if name.startswith("test") and not _asserts(f, functions)]


def test_no_test_is_empty() -> None:
    found = {path: empty_tests(path.read_text()) for path in TESTS}
    assert {path: names for path, names in found.items() if names} == {}


def test_an_empty_test_is_caught() -> None:
    source = """
def test_runs():
    solve()
def test_compares():
    a == b
def test_helped():
    check(1)
def test_raising():
    with pytest.raises(ValueError):
        solve()
def check(x):
    np.testing.assert_allclose(x, 1)
"""
    assert empty_tests(source) == ["test_runs", "test_compares"]


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in TESTS]
    assert sorted(names) == sorted(set(names))


MACHINE_PATH = re.compile(r"(?<![\w./-])/(?:work|home|root|tmp)\b")


def test_no_path_of_one_machine() -> None:
    found = {path: MACHINE_PATH.findall(path.read_text()) for path in [*SOURCES, *EXPERIMENTS, *TESTS]}
    assert {path: paths for path, paths in found.items() if paths} == {}


def test_a_path_of_one_machine_is_caught() -> None:
    for name in ("work", "home", "root", "tmp"):
        assert MACHINE_PATH.search(f'open("/{name}/me/x.csv")')
    assert not MACHINE_PATH.search("https://example.org/home/x and tests/tmp/x, w / root")
