"""What the pages say is run: every block of Python and every `$ fedpact` line, in order, page by page."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import notebooks
import pytest
from click.testing import CliRunner

from fedpact.cli.main import cli
from fedpact.solvers import METHODS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', flags=re.DOTALL | re.MULTILINE)


def blocks(page, language):
    return [text for kind, _, text in BLOCK.findall(page.read_text()) if kind == language]


def run_command(line):
    program, *arguments = shlex.split(line)
    assert program == "fedpact"
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output


def page_of_code(page):
    """What needs PyTorch runs where that is installed."""
    marks = [pytest.mark.extras] if page.name in ("neural-networks.md", "network-jobs.md") else []
    return pytest.param(page, id=page.name, marks=marks)


@pytest.mark.parametrize("page", [page_of_code(p) for p in PAGES if blocks(p, "python")])
def test_code_on_the_page_runs(page, tmp_path, monkeypatch):
    """Files are those that the page shows under a title; commands and Python run in their folder."""
    if page.name in ("neural-networks.md", "network-jobs.md"):
        pytest.importorskip("torch", reason="torch is not installed: pip install '.[torch]'")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for language, title, text in BLOCK.findall(page.read_text()):
        if title:
            Path(title).write_text(text)
        elif language == "console":
            for command in re.findall(r"^\$ (.+)$", text, flags=re.MULTILINE):
                run_command(command)
        elif language == "python":
            exec(compile(text, str(page), "exec"), names)
    assert "answer" in names
    answer = names["answer"]
    assert answer.solved or answer.trained  # the latter of a network in a fit


@pytest.mark.parametrize("path", sorted(notebooks.FOLDER.glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_run_and_hold_what_they_show(path):
    notebook = notebooks.read(path)
    before = [len(cell["outputs"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names = notebooks.execute(notebook)
    assert [len(cell["outputs"]) for cell in notebook["cells"] if cell["cell_type"] == "code"] == before
    assert sum(before) >= 3
    assert names["answer"].solved
    page = notebooks.to_markdown(notebook)
    targets = re.findall(r"\]\(([^)#:]+)[)#]", page)
    assert targets
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_ci_runs_the_test_command_of_the_readme_before_anything_else():
    commands = [command.strip() for command in blocks(ROOT / "README.md", "sh")]
    assert len(commands) == 2
    assert all("\n" not in command for command in commands)  # each is a single line
    ci = (ROOT / ".ci" / "run").read_text()
    (chosen,) = re.findall(r"sed -n '/(.+)\$/p' README\.md", ci)
    assert [line for line in (ROOT / "README.md").read_text().splitlines() if line.endswith(chosen)] == commands[1:]
    assert ci.index("sed -n") < ci.index("torch==")


def test_the_demo_of_the_readme_prints_what_it_prints():
    pytest.importorskip("sklearn", reason="the data of the demo are in scikit-learn: pip install '.[sklearn]'")
    (shown,) = (text for text in blocks(ROOT / "README.md", "text") if "hospital 1" in text)
    done = CliRunner().invoke(cli, ["demo"])
    printed = [line.rstrip() for line in done.output.splitlines()]
    *lines, rest = shown.splitlines()
    assert rest.strip() == "..."
    assert len(lines) == 4
    start = printed.index(lines[0])
    assert printed[start : start + len(lines)] == lines


def test_the_readme_lists_every_method():
    (methods,) = re.findall(r"^## Methods\n(.*?)^## ", (ROOT / "README.md").read_text(), flags=re.DOTALL | re.MULTILINE)
    first = [line.split("|")[1] for line in methods.splitlines() if line.startswith('| `"')]
    assert set(re.findall(r'`"([\w-]+)"`', "".join(first))) == {"auto", *METHODS}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:]+)[)#]", page.read_text())
    missing = [t for t in targets if not (page.parent / t).exists()]
    assert missing == []


def links(text):
    """The targets of all links by reference of a page; every reference is one that it defines, and is used."""
    targets = dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", text, flags=re.MULTILINE))
    assert set(re.findall(r"\]\[([^\]]+)\]", text)) == set(targets)
    return list(targets.values())


def test_links_of_the_readme_lead_to_files_of_the_repository():
    text = (ROOT / "README.md").read_text()
    assert re.findall(r"https?://\S+", text) == []
    assert [target for target in links(text) if not (ROOT / target).is_file()] == []


def test_links_of_the_readme_are_addresses_where_an_index_shows_it():
    pytest.importorskip("hatch_fancy_pypi_readme", reason="hatch-fancy-pypi-readme is not installed")
    program = [sys.executable, "-m", "hatch_fancy_pypi_readme"]
    shown = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    address = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
    expected = [
        f"{address}/{'raw' if target.endswith('.png') else 'blob'}/main/{target}"
        for target in links((ROOT / "README.md").read_text())
    ]
    assert links(shown) == expected


def test_what_is_installed_is_named_as_it_works_from_a_clone():
    """No package index has fedpact."""
    pages = [*PAGES, ROOT / "deploy" / "README.md", *(ROOT / "examples").rglob("*.py"), *(ROOT / "src").rglob("*.py")]
    assert [page.name for page in pages if "install 'fedpact" in page.read_text()] == []
