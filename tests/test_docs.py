"""What the pages say is run: every block of Python and every `$ fedpact` line, in order, page by page."""

import re
import shlex
import tomllib
from pathlib import Path

import notebooks
import pytest
from click.testing import CliRunner

from fedpact.cli.main import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Pages of the site that stand at the top of the repository.
FROM_ROOT = ["changelog.md", "contributing.md", "architecture.md"]
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', flags=re.DOTALL | re.MULTILINE)


def blocks(page, language):
    return [text for kind, _, text in BLOCK.findall(page.read_text()) if kind == language]


def run_command(line):
    program, *arguments = shlex.split(line)
    assert program == "fedpact"
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output


@pytest.mark.extras
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_code_on_the_page_runs(page, tmp_path, monkeypatch):
    """Files are those that the page shows under a title; commands and Python run in their folder."""
    if page.name in ("neural-networks.md", "network-jobs.md"):
        pytest.importorskip("torch", reason="torch is not installed: pip install 'fedpact[torch]'")
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


def test_ci_runs_the_test_command_of_the_readme():
    commands = blocks(ROOT / "README.md", "sh")
    assert len(commands) == 2
    assert all("\n" not in command.strip() for command in commands)  # each is a single line
    assert commands[1].strip() in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:]+)[)#]", page.read_text())
    missing = [t for t in targets if not (page.parent / t).exists()]
    assert missing == []


def test_links_of_the_readme_work_outside_the_repository():
    """A package index shows the README alone, so that every link is an address: of the site, or of the repository."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    text = (ROOT / "README.md").read_text()
    addresses = dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", text, flags=re.MULTILINE))
    assert re.findall(r"\]\((?!https://)[^)]+\)", text) == []
    assert set(re.findall(r"\]\[([^\]]+)\]", text)) == set(addresses)
    for address in [*addresses.values(), *re.findall(r"\]\((https://[^)]+)\)", text)]:
        assert names_a_file(address, urls["Documentation"], urls["Repository"]), address


def names_a_file(address, site, repository):
    if address.startswith(f"{repository}/blob/main/"):
        return (ROOT / address.removeprefix(f"{repository}/blob/main/")).is_file()
    page = address.removeprefix(site).replace(".html", ".md") or "index.md"
    return page in FROM_ROOT or (ROOT / "docs" / page).is_file()


def test_a_broken_link_of_the_readme_is_caught():
    site, repository = "https://site/", "https://repository"
    assert names_a_file("https://site/tutorial.html", site, repository)
    assert names_a_file("https://repository/blob/main/README.md", site, repository)
    assert not names_a_file("https://site/absent.html", site, repository)
    assert not names_a_file("https://repository/blob/main/absent", site, repository)
    assert not names_a_file("https://elsewhere/tutorial.html", site, repository)
