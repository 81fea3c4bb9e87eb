"""What the pages say is run: every block of Python, in order, page by page; and CI runs the README's test command."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_python_on_the_page_runs(page, capsys):
    if page.name == "neural-networks.md":
        pytest.importorskip("torch", reason="torch is not installed: pip install 'fedpact[torch]'")
    names: dict[str, object] = {"__name__": page.stem}
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), names)
    assert "answer" in names
    assert names["answer"].solved


def test_ci_runs_the_test_command_of_the_readme():
    commands = blocks(ROOT / "README.md", "sh")
    assert len(commands) == 2
    assert all("\n" not in command.strip() for command in commands)  # each is a single line
    assert commands[1].strip() in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    missing = [t for t in targets if not (page.parent / t).exists()]
    assert missing == []
