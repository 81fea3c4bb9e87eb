"""A report as a page or as Markdown, from templates: fedpact's own, or those of an organisation, in its language.

The page is self-contained, for screen and paper: no network, no script, no font.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined, TemplateError
from markupsafe import Markup

from fedpact.errors import FedpactError
from fedpact.report.charts import Chart, Forest, draw, legend
from fedpact.report.content import Report
from fedpact.report.language import language, read_words, say

#: fedpact's own templates.
TEMPLATES = Path(__file__).with_name("templates")
#: Texts in another language, in an organisation's folder.
WORDS = "words.toml"
#: Characters with a meaning in Markdown.
SIGNS = re.compile(r"([\\`*_{}\[\]#|~])")


def write_page(make: Callable[[], Report], templates: str | Path | None = None, name: str = "page.html") -> str:
    """The document that a template makes of a report.

    make:      makes the report; called in the language of the templates
    templates: folder of an organisation's own: what is there (page.html, blocks.html, page.css, report.md, words.toml)
               is taken in the place of fedpact's. A template may extend "fedpact/page.html"

    Raises FedpactError for a folder, a template or a list of texts that cannot be used.
    """
    own = Path(templates) if templates is not None else TEMPLATES
    if not own.is_dir():
        raise FedpactError(f"{own} is no folder of templates; give one that exists", code="FP-942")
    words = read_words(own / WORDS)
    environment = _environment(own)
    try:
        with language(words):
            return environment.get_template(name).render(report=make())
    except TemplateError as error:
        told = f"a template in {own} cannot be used ({type(error).__name__}: {error}); correct it"
        raise FedpactError(told, code="FP-943") from error


def page(report: Report) -> str:
    """The page of a report that is made already, by fedpact's own templates."""
    return write_page(lambda: report)


def markdown(report: Report) -> str:
    """A report as Markdown: the same words and tables as the page, and a sentence in place of each chart."""
    return write_page(lambda: report, name="report.md")


def _environment(own: Path) -> Environment:
    ours = FileSystemLoader(TEMPLATES)
    loader = ChoiceLoader([FileSystemLoader(own), ours, PrefixLoader({"fedpact": ours})])
    environment = Environment(
        loader=loader,
        autoescape=lambda name: not str(name).endswith(".md"),
        undefined=StrictUndefined,
        trim_blocks=False,
        keep_trailing_newline=True,
    )
    environment.filters["plain"] = plain
    environment.globals |= {
        "say": say,
        "draw": lambda chart: Markup(draw(chart)),  # its texts are escaped where it is drawn
        "legend": _legend,
        "style": Markup(loader.get_source(environment, "page.css")[0]),
    }
    return environment


def _legend(chart: Chart | Forest) -> Markup:
    return Markup(legend(chart))


def plain(text: str) -> str:
    """Text with Markdown and HTML characters escaped, on one line."""
    one_line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SIGNS.sub(r"\\\1", one_line)
