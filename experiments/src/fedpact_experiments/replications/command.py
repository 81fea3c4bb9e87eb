"""`fedpact replicate`: an experiment of a paper, run again, its numbers and claims beside ours."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fedpact.report import figures
from fedpact_experiments.options import DATA
from fedpact_experiments.replications import (
    fairvfl,
    he24_fair,
    he24_lcqp,
    he24_np,
    ifeddr_fair,
    ifeddr_fashion,
    ifeddr_logistic,
    ifeddr_probing,
    pages,
)
from fedpact_experiments.replications.findings import show_findings
from fedpact_experiments.replications.runner import Asked, Replication, carry_out

_MODULES = (he24_lcqp, he24_np, he24_fair, ifeddr_logistic, ifeddr_fair, ifeddr_probing, ifeddr_fashion, fairvfl)
REPLICATIONS: dict[str, Replication[Any, Any]] = {module.PAGE.name: module.REPLICATION for module in _MODULES}


def _list(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        width = max(map(len, REPLICATIONS))
        for name, replication in REPLICATIONS.items():
            click.echo(f"{name:{width}}  {replication.page.summary}")
        ctx.exit()


def _index(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    if value is not None and not ctx.resilient_parsing:
        target = value.with_name(f"{value.name}.md")
        target.write_text(pages.index(value, REPLICATIONS, f"fedpact replicate --index {value}"))
        click.echo(f"wrote {target}", err=True)
        ctx.exit()


def _command(ctx: click.Context) -> str:
    """What was typed, without the folder of the data and without --resume: the runs are those of one command."""
    words = ["fedpact", "replicate", ctx.params["name"]]
    options = [param for param in ctx.command.params if isinstance(param, click.Option)]
    for option in options:
        name = str(option.name)
        if name != "resume" and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            words.append(option.opts[0])
            if not option.is_flag:
                words.append("DIR" if name == "folder" else str(ctx.params[name]))
    return " ".join(words)


@click.command()
@click.argument("name", type=click.Choice(list(REPLICATIONS)))
@DATA
@click.option("--out", type=click.Path(path_type=Path), default=Path(), help="Folder of the page. [default: here]")
@click.option(
    "--trials",
    type=click.IntRange(1),
    help="Random starts or instances of he24-lcqp, he24-np and he24-fair; the others have seeds of their own. "
    "[default: 10, as the papers; fewer where a run is slow, and the table says so]",
)
@click.option("--quick", is_flag=True, help="A small part in under a minute: to see that it runs, not for its numbers.")
@click.option("--resume", is_flag=True, help="Keep the finished runs of --out/NAME.jsonl; only make the others.")
@click.option("--markdown", is_flag=True, help="Print tables as Markdown.")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="List the names.")
@click.option(
    "--index",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    is_eager=True,
    expose_value=False,
    callback=_index,
    help="Write FOLDER.md from the pages in a folder, one of every name.",
)
@click.pass_context
def replicate(
    ctx: click.Context,
    name: str,
    folder: str | None,
    out: Path,
    trials: int | None,
    quick: bool,
    resume: bool,
    markdown: bool,
) -> None:
    """Run an experiment of a paper again.

    Prints measured tables, every claim of the paper beside what was found, and where and why the experiment is not the
    paper's own; writes the same as a page (NAME.md) with its figures (SVG) into --out. Figures of papers have no
    numbers to compare with: what they show is said in words. Every finished run is kept in NAME.jsonl beside the page:
    after Ctrl-C, the same command with --resume goes on.

    \b
    fedpact replicate --list
    fedpact replicate he24-lcqp --out figures --trials 3
    fedpact replicate ifeddr-logistic --data DIR --out figures
    fedpact replicate ifeddr-fair --data DIR --quick
    fedpact replicate fairvfl --data DIR --markdown
    fedpact replicate --index docs/replications
    """
    figures.figure_class()  # known before an hour of work
    out.mkdir(parents=True, exist_ok=True)
    replication = REPLICATIONS[name]
    asked = Asked(folder, quick, trials, partial(click.echo, err=True))
    ran = carry_out(replication, asked, out / f"{name}.jsonl", resume)
    found = ran.found
    took = f"in {ran.minutes:.0f} minutes"
    if quick:
        found, took = found.undecided(), "a small part only, on which no claim is decided"
    show_findings(replication.page.title, found, markdown)
    if quick:
        click.echo(f"\n--quick: {took}.")
    for file, figure in found.figures.items():
        click.echo(f"wrote {figures.save(figure, out / f'{file}.svg')}", err=True)
    pages.write(replication.page.title, found, out / f"{name}.md", _command(ctx), f"{took}, with {pages.versions()}")
    click.echo(f"wrote {out / f'{name}.md'}", err=True)
