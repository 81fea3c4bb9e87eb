"""What a replication found as a page of Markdown, and the page that lists all of them.

The list is made from the pages, which are the record of runs that take long: `index` counts and copies what they say.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

from fedpact.errors import DataError
from fedpact_experiments.replications.findings import Findings
from fedpact_experiments.tables import markdown

VERDICTS = ("agrees", "fitted", "DIFFERS", "not decided")
CLAIMS = "## What the paper says, and what was found"
#: All below is written by hand, and kept when the page is written again.
REMARKS = "## Remarks"


def versions() -> str:
    names = {"fedpact": "fedpact", "numpy": "NumPy", "scipy": "SciPy"}
    return ", ".join([*(f"{name} {version(of)}" for of, name in names.items()), f"Python {platform.python_version()}"])


def write(title: str, found: Findings, path: Path, command: str, how: str) -> None:
    """The page at this path, with the remarks of the page that was there. how: of the run, e.g. its versions"""
    _, heading, remarks = (path.read_text() if path.exists() else "").partition(f"\n{REMARKS}\n")
    path.write_text("\n\n".join(_paragraphs(title, found, command, how)) + "\n" + heading + remarks)


def _paragraphs(title: str, found: Findings, command: str, how: str) -> Iterator[str]:
    yield f"# {title}"
    yield f"Tables, claims and figures of this page were made by this command, {how}:"
    yield f"```text\n{command}\n```"
    beside = {name for table in found.tables for name in table.figures}
    for table in found.tables:
        if table.title:
            yield f"## {table.title}"
        yield from map(_picture, table.figures)
        yield markdown(table.columns, table.rows)
        yield table.caption
    yield from (_picture(name) for name in found.figures if name not in beside)
    yield CLAIMS
    for claim in found.claims:
        told = [f"  - {who}: {text}" for who, text in claim.statements().items()]
        yield "\n".join([f"- **{claim.verdict}**: {claim.where}", *told])
    yield "## Where this is not what the paper did"
    yield "\n".join(f"- {difference}" for difference in found.differences)


def _picture(name: str) -> str:
    return f"![{name.replace('-', ' ')}]({name}.svg)"


def index(folder: Path, names: Iterable[str], command: str) -> str:
    """The list of all replications, from the pages NAME.md in a folder beside the list.

    Raises DataError for a page that is missing or has no command or claims.
    """
    pages = {name: _Page(folder / f"{name}.md") for name in names}
    rows = [
        [f"[{name}]({folder.name}/{name}.md)", page.title, *(str(len(page.claims(v))) for v in VERDICTS)]
        for name, page in pages.items()
    ]
    sums = [str(sum(len(page.claims(verdict)) for page in pages.values())) for verdict in VERDICTS]
    parts = [
        "# The papers' experiments, run again",
        "Experiments of the papers, each with a command that runs it again and a page that it wrote: measured tables, "
        "every claim of the paper beside what was found, and where and why the experiment is not the paper's "
        "own. fitted: it agrees, and what the paper leaves open was chosen with these numbers in view. "
        "This list is made from the pages of the full runs by",
        f"```text\n{command}\n```",
        markdown(("name", "experiment", *VERDICTS), [*rows, ["all", "", *sums]]),
        "What differs is below, with the reason; how each experiment is not the paper's own is on its page.",
    ]
    for name, page in pages.items():
        parts += [f"## [{name}]({folder.name}/{name}.md)", page.title, page.command]
        parts += page.claims("DIFFERS") or ["No claim differs."]
    return "\n\n".join(parts) + "\n"


class _Page:
    """A page as `write` makes it, read back."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise DataError(f"page {path} is missing; run: fedpact replicate {path.stem} --out {path.parent}")
        text = path.read_text()
        head = re.match(r"# ([^\n]+)\n.*?(```text\n.+?\n```)", text, re.DOTALL)
        found = re.search(rf"^{CLAIMS}\n(.*?)(^## |\Z)", text, re.DOTALL | re.MULTILINE)
        if not head or not found:
            raise DataError(f"page {path} has no command or no part {CLAIMS!r}; let `fedpact replicate` write it")
        self.title, self.command = head.groups()
        self.listed = found.group(1).strip().split("\n\n")

    def claims(self, verdict: str) -> list[str]:
        return [claim for claim in self.listed if claim.startswith(f"- **{verdict}**:")]
