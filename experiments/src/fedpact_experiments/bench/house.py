"""`fedpact bench house`: how the code reads, counted: sizes, docstrings, comments, density, branching."""

from __future__ import annotations

import ast
import csv
import io
import tokenize
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import click

import fedpact
from fedpact_experiments.bench.output import MARKDOWN
from fedpact_experiments.tables import show_rows

#: The same counts of other projects of the field, counted once by another script; theirs may differ in details.
ANCHORS = Path(__file__).with_name("anchors.csv")
BRANCHES = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.BoolOp, ast.comprehension, ast.Assert)
Functions = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Counts:
    """Of all Python files below a folder."""

    files: int = 0
    lines: int = 0
    blank: int = 0
    docstrings: int = 0
    comments: int = 0
    remarks: int = 0  # comments that have a line of their own
    nodes: int = 0
    conditionals: int = 0
    tuples: int = 0
    sizes: list[int] = field(default_factory=list)
    complexities: list[int] = field(default_factory=list)

    @property
    def code(self) -> int:
        """Lines that are neither blank nor a docstring nor a comment of their own."""
        return self.lines - self.blank - self.docstrings - self.remarks

    def row(self) -> dict[str, str]:
        """By the names of the columns in anchors.csv."""
        per = 1000 / self.code
        p95 = quantiles(self.sizes, n=20)[-1]
        complex_ones = sum(c > 10 for c in self.complexities) / len(self.complexities)
        return {
            "lines": str(self.lines),
            "median / p95 function": f"{median(self.sizes):.0f} / {p95:.0f}",
            "docstring %": f"{100 * self.docstrings / self.lines:.0f}",
            "comment %": f"{100 * self.comments / self.lines:.1f}",
            "syntax nodes a line": f"{self.nodes / self.code:.1f}",
            "conditional expressions per 1000 lines": f"{per * self.conditionals:.1f}",
            "tuple assignments per 1000 lines": f"{per * self.tuples:.1f}",
            "functions of complexity > 10": f"{complex_ones:.1%}",
        }


def count(folder: Path) -> Counts:
    found = Counts()
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text()
        tree = ast.parse(text)
        found.files += 1
        found.lines += len(text.splitlines())
        found.blank += sum(not line.strip() for line in text.splitlines())
        found.remarks += sum(line.lstrip().startswith("#") for line in text.splitlines())
        found.comments += sum(t.type == tokenize.COMMENT for t in tokenize.generate_tokens(io.StringIO(text).readline))
        for node in ast.walk(tree):
            found.nodes += 1
            found.docstrings += _docstring_lines(node)
            found.conditionals += isinstance(node, ast.IfExp)
            found.tuples += isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
            if isinstance(node, Functions):
                found.sizes.append((node.end_lineno or node.lineno) - node.lineno + 1)
                found.complexities.append(1 + sum(_weight(inner) for inner in ast.walk(node)))
    return found


def _docstring_lines(node: ast.AST) -> int:
    if not isinstance(node, ast.Module | ast.ClassDef | Functions) or ast.get_docstring(node, clean=False) is None:
        return 0
    text = node.body[0]
    return (text.end_lineno or text.lineno) - text.lineno + 1


def _weight(node: ast.AST) -> int:
    """What a node adds to McCabe's complexity."""
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    return int(isinstance(node, BRANCHES))


@click.command()
@click.option(
    "--also", type=click.Path(exists=True, file_okay=False, path_type=Path), multiple=True, help="More folders."
)
@MARKDOWN
def house(also: tuple[Path, ...], markdown: bool) -> None:
    """Count how the code reads, beside other projects of the field: sizes, docstrings, comments, density, branching.

    Density and branching are per line of code: neither blank, nor docstring, nor a comment of its own.
    """
    own = Path(fedpact.__file__).parent
    folders = {"fedpact": own, "fedpact.solvers": own / "solvers", **{str(folder): folder for folder in also}}
    with ANCHORS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows += [{"project": name, **count(folder).row()} for name, folder in folders.items()]
    show_rows(rows, markdown)
