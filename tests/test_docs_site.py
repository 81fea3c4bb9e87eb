"""The documentation site: what is generated from the code is complete, and the site builds without a warning."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import click
import generate
import pytest
from docstrings import escape, to_markdown

import fedpact
from fedpact import errors
from fedpact.cli.main import cli
from fedpact.federation import policy
from fedpact.federation.policy import SitePolicy
from fedpact.jobs.keys import KEYS, LISTS, OPEN
from fedpact.solvers import METHODS
from fedpact.solvers.base import options_of

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"


def sections(text: str) -> dict[str, str]:
    """The text below each heading of the second level."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


#: All rules of a site's policy; each is named after a key.
RULES = [getattr(policy, name) for name in vars(policy) if name.startswith("ABOUT_")]


def filled(page: str) -> str:
    return generate.fill((REFERENCE / page).read_text())


# ------------------------------------------------------------------------------------------------ what is complete


@pytest.mark.parametrize("method", METHODS)
def test_every_option_of_every_method_is_on_its_page(method: str) -> None:
    section = sections(filled("options.md"))[method]
    for name, (_, default, about) in options_of(METHODS[method]).items():
        (line,) = [line for line in section.splitlines() if line.startswith(f"| `{name}` |")]
        for fact in (about.letter, f"`{default!r}`", about.range, *about.choices, about.doc):
            assert escape(fact) in line or fact in line


def test_every_job_key_is_on_its_page_and_explained() -> None:
    page = sections(filled("job-keys.md"))
    for key in KEYS.values():
        title = f"`[[{key.table}]]`" if key.table in LISTS else f"`[{key.table}]`"
        section = page[title if key.table else "At the top"]
        (line,) = [line for line in section.splitlines() if line.startswith(f"| `{key.name}` |")]
        for fact in (key.doc, key.default, *key.choices, *key.tasks):
            assert escape(fact) in line
    assert [table for table in OPEN if f"`[{table}]`" not in page] == []
    assert [key for key in generate.read_job_keys() if not key.text] == []


def test_every_key_of_a_policy_is_on_its_page() -> None:
    page = sections(filled("site-keys.md"))
    for key in generate.read_site_keys():
        assert escape(key.text) in page[f"`[{key.table}]`"]
        assert escape(key.default) in page[f"`[{key.table}]`"]
    assert [rule.name for rules in RULES for rule in rules if rule.name not in SitePolicy.__dataclass_fields__] == []


def test_every_error_is_on_its_page() -> None:
    page = sections(filled("errors.md"))
    assert set(page) == set(errors.CODES)
    for code, text in page.items():
        assert f"`{errors.class_of(code).__name__}`: " in text
        assert len(text.split()) > 3
    raised = {found.code for found in vars(errors).values() if inspect.isclass(found)}
    assert raised <= set(page)


def test_every_command_is_on_its_page() -> None:
    page = sections(filled("command-line.md"))
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
        assert [option for option in options if option not in page[f"fedpact {name}"]] == []
    assert "fedpact bench rounds" in page


def test_every_public_name_is_on_a_page_of_the_api() -> None:
    pages = {page.stem: generate.fill(page.read_text()) for page in (REFERENCE / "api").glob("*.md")}
    shown = set(re.findall(r"^::: (\S+)$", "\n".join(pages.values()), flags=re.MULTILINE))
    for name in fedpact.__all__:
        found = getattr(fedpact, name)
        assert f"fp.{name}`" in pages["index"]
        if inspect.ismodule(found):
            assert {f"fedpact.{name}.{inner}" for inner in found.__all__} <= shown
        else:
            assert shown & {f"fedpact.{name}", f"fedpact.{name}.{name}", f"fedpact.estimators.{name}"}


def test_an_unknown_part_is_an_error() -> None:
    with pytest.raises(KeyError):
        generate.fill("<!-- generated: nothing -->")


# ------------------------------------------------------------------------------------------- docstrings as Markdown


def test_entries_of_a_docstring_become_a_list() -> None:
    text = """What it is.

    penalty, decay: of the constraints,
        in the paper's letters
    dim:            length of K*

    Raises:
        DataError: a value is missing
    """
    assert to_markdown(text) == (
        "What it is.\n\n"
        "- `penalty`, `decay`: of the constraints, in the paper's letters\n"
        "- `dim`: length of K\\*\n\n"
        "**Raises:**\n\n"
        "- `DataError`: a value is missing"
    )


def test_formulas_and_code_of_a_docstring_stay() -> None:
    text = "As `c(w) <=_K 0`: x <=_K y\n\n    min f(w) * g_i\n\nNotation\n    rho   penalty\n    q     decay"
    assert to_markdown(text) == (
        "As `c(w) <=_K 0`: x &lt;=\\_K y\n\n    min f(w) * g_i\n\n**Notation**\n\n    rho   penalty\n    q     decay"
    )
    assert to_markdown(None) == ""


# ------------------------------------------------------------------------------------------------------- the release


def test_versions_and_addresses_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert project["version"] == fedpact.__version__
    assert f"version: {project['version']}\n" in citation
    assert f"## {project['version']}" in (ROOT / "CHANGELOG.md").read_text()
    site = (ROOT / "mkdocs.yml").read_text()
    assert f"site_url: {project['urls']['Documentation']}\n" in site
    assert f"repository: {project['urls']['Repository']}\n" in site
    assert f"repository-code: {project['urls']['Repository']}\n" in citation


def test_the_changelog_is_sorted_by_kind() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    releases = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    assert releases[0] in ("Unreleased", fedpact.__version__)
    kinds = set(re.findall(r"^### (.+)$", text, flags=re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


# --------------------------------------------------------------------------------------------------------- the site


class Loaded(HTMLParser):
    """What a page loads: scripts, styles, pictures, frames; not where its links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.addresses.append(given.get("src") or "")
        if tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.addresses.append(given.get("href") or "")


def loaded_from_elsewhere(html: str) -> list[str]:
    parser = Loaded()
    parser.feed(html)
    return [address for address in parser.addresses if re.match(r"(\w+:)?//", address)]


def test_what_a_page_loads_from_elsewhere_is_caught() -> None:
    page = '<link rel="stylesheet" href="https://fonts.example/a.css"><script src="//cdn.example/b.js"></script>'
    assert loaded_from_elsewhere(page) == ["https://fonts.example/a.css", "//cdn.example/b.js"]
    assert loaded_from_elsewhere('<a href="https://example"></a><img src="../c.png"><script>1</script>') == []


@pytest.mark.extras
@pytest.mark.slow
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text()
        assert loaded_from_elsewhere(text) == [], page.name
        assert "<!-- generated" not in text, page.name
    options = (tmp_path / "reference" / "options.html").read_text()
    assert all(f'id="{method}"' in options for method in METHODS)
    api = (tmp_path / "reference" / "api" / "problem.html").read_text()
    assert 'id="fedpact.Share"' in api
