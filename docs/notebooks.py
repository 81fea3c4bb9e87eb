"""Notebooks of the documentation: executed here, without Jupyter, and shown as pages of the site.

`python docs/notebooks.py` runs every notebook and writes its outputs into it.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "tutorials"


def execute(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run the cells in order, in one namespace, and keep their outputs; the names that are defined then.

    The last expression of a cell is shown, as Jupyter does.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        number += 1
        printed, shown = run("".join(cell["source"]), names)
        cell["execution_count"] = number
        cell["outputs"] = []
        if printed:
            cell["outputs"].append({"name": "stdout", "output_type": "stream", "text": lines(printed)})
        if shown is not None:
            result = {"data": bundle(shown), "execution_count": number, "metadata": {}, "output_type": "execute_result"}
            cell["outputs"].append(result)
    return names


def run(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """What a cell prints, and the value of its last line where that is an expression."""
    tree = ast.parse(source)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
    printed = io.StringIO()
    shown = None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec", dont_inherit=True), names)
        if last is not None:
            shown = eval(compile(last, "<cell>", "eval", dont_inherit=True), names)
    return printed.getvalue(), shown


def bundle(value: Any) -> dict[str, Any]:
    """A value as notebooks keep it: a picture, or HTML and text."""
    if hasattr(value, "savefig"):
        picture = io.BytesIO()
        value.savefig(picture, format="png", dpi=80)
        return {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": ["<Figure>"]}
    found: dict[str, Any] = {"text/plain": lines(repr(value))}
    if hasattr(value, "_repr_html_"):
        found["text/html"] = lines(value._repr_html_())
    return found


def to_markdown(notebook: dict[str, Any]) -> str:
    """The page of a notebook, with the outputs that it holds."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", [])})
            if "image/png" in data:
                parts.append(f'<img alt="Output of the cell above" src="data:image/png;base64,{data["image/png"]}">')
            elif "text/html" in data:
                parts.append("".join(data["text/html"]))
            else:
                parts.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.ipynb")):
        notebook = read(path)
        execute(notebook)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
