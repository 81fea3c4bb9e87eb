"""What MkDocs calls while it builds the site: see `hooks` and `extensions` in mkdocs.yml."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

import griffe
import notebooks
from docstrings import to_markdown
from generate import fill
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
#: Pages that stand at the top of the repository, and their place in the site.
FROM_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "ARCHITECTURE.md": "architecture.md"}
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


class PlainDocstrings(griffe.Extension):
    """Turns every docstring into Markdown before mkdocstrings renders it."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's top, and the notebooks as pages."""
    for source, page in FROM_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for notebook in sorted(notebooks.FOLDER.glob("*.ipynb")):
        content = notebooks.to_markdown(notebooks.read(notebook))
        files.append(File.generated(config, f"tutorials/{notebook.stem}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is generated, and turn links between files of the repository into links of the site."""
    place = PurePosixPath(page.file.src_uri)
    source = {page: name for name, page in FROM_ROOT.items()}.get(str(place), f"docs/{place}")
    linked = LINK.sub(lambda link: site_link(link[1], source, place, str(config.extra["repository"])), markdown)
    return nest_by_four(fill(linked))


def site_link(target: str, source: str, place: PurePosixPath, repository: str) -> str:
    """A link of the file `source` as the page at `place` must write it."""
    file = PurePosixPath(os.path.normpath(PurePosixPath(source).parent / target))
    if str(file) in FROM_ROOT:
        page = FROM_ROOT[str(file)]
    elif file.parts[0] == "docs":
        page = str(file.relative_to("docs"))
    else:
        return f"{repository}/blob/main/{file}"
    return os.path.relpath(page, place.parent)


def nest_by_four(markdown: str) -> str:
    """Lists inside lists indented by four, which Python-Markdown needs; elsewhere two are enough."""
    return re.sub(r"^  (?=- )", "    ", markdown, flags=re.MULTILINE)
