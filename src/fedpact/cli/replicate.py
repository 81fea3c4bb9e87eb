"""`fedpact replicate`: an experiment of a paper, run again, its numbers and claims beside ours."""

from __future__ import annotations

import importlib
import time
from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource

from fedpact.cli.bench_output import DATA
from fedpact.cli.replications import pages
from fedpact.cli.replications.findings import Task, printed
from fedpact.report import figures

#: name -> (module with `replicate(task)`, one line for --list)
REPLICATIONS = {
    "he24-lcqp": (
        "fedpact.cli.replications.he24_lcqp",
        "He24, Table 4, and He24-conic, Table 1: quadratic programs, Algorithm 1 beside Algorithm 3",
    ),
    "he24-np": (
        "fedpact.cli.replications.he24_np",
        "He24, Tables 1 and 3, Figure 1, and He24-conic, Table 2: Neyman-Pearson classification, on three UCI tables",
    ),
    "he24-fair": (
        "fedpact.cli.replications.he24_fair",
        "He24, Table 2, Figure 2, and He24-conic, Table 3: bounded loss gaps between groups, on adult-b",
    ),
    "ifeddr-logistic": (
        "fedpact.cli.replications.ifeddr_logistic",
        "iFedDR, Figures 1, 2, 5 and 8: logistic regression on vehicle and w8a, against tuned baselines",
    ),
    "ifeddr-fair": (
        "fedpact.cli.replications.ifeddr_fair",
        "iFedDR, Figure 4: fair classification on features of CIFAR-10, accuracy on the worst class",
    ),
    "ifeddr-probing": (
        "fedpact.cli.replications.ifeddr_probing",
        "iFedDR, Figures 3 and 6: linear probing on features of CIFAR-10, and how rarely iFedDR asks for more work",
    ),
    "ifeddr-fashion": (
        "fedpact.cli.replications.ifeddr_fashion",
        "iFedDR, Figure 7: Fashion-MNIST, every owner with the images of one class",
    ),
    "fairvfl": (
        "fedpact.cli.replications.fairvfl",
        "Fair VFL, Table I, Figures 1 and 2: a bounded gap of loss between groups, columns at six parties",
    ),
}


def _listed(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        width = max(map(len, REPLICATIONS))
        for name, (_, text) in REPLICATIONS.items():
            click.echo(f"{name:{width}}  {text}")
        ctx.exit()


def _indexed(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    if value is not None and not ctx.resilient_parsing:
        target = value.with_name(f"{value.name}.md")
        target.write_text(pages.index(value, REPLICATIONS, f"fedpact replicate --index {value}"))
        click.echo(f"wrote {target}", err=True)
        ctx.exit()


def _command(ctx: click.Context) -> str:
    """What was typed, without the folder of the data."""
    words = ["fedpact", "replicate", ctx.params["name"]]
    options = [param for param in ctx.command.params if isinstance(param, click.Option)]
    for option in options:
        name = str(option.name)
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
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
@click.option("--markdown", is_flag=True, help="Print tables as Markdown.")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_listed, help="List the names.")
@click.option(
    "--index",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    is_eager=True,
    expose_value=False,
    callback=_indexed,
    help="Write FOLDER.md from the pages in a folder, one of every name.",
)
@click.pass_context
def replicate(
    ctx: click.Context, name: str, folder: str | None, out: Path, trials: int | None, quick: bool, markdown: bool
) -> None:
    """Run an experiment of a paper again.

    Prints measured tables, every claim of the paper beside what was found, and where and why the experiment is not the
    paper's own; writes the same as a page (NAME.md) with its figures (SVG) into --out. Figures of papers have no
    numbers to compare with: what they show is said in words.

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
    module, began = importlib.import_module(REPLICATIONS[name][0]), time.monotonic()
    found = module.replicate(Task(folder, quick, partial(click.echo, err=True), trials))
    took = f"in {(time.monotonic() - began) / 60:.0f} minutes"
    if quick:
        found, took = found.undecided(), "a small part only, on which no claim is decided"
    printed(found, markdown)
    if quick:
        click.echo(f"\n--quick: {took}.")
    for file, figure in found.figures.items():
        click.echo(f"wrote {figures.save(figure, out / f'{file}.svg')}", err=True)
    pages.write(found, out / f"{name}.md", _command(ctx), f"{took}, with {pages.versions()}")
    click.echo(f"wrote {out / f'{name}.md'}", err=True)
