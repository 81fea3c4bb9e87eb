"""`fedpact split`: divide one table among owners, for simulations; writes a CSV file per owner."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import click
from click.core import ParameterSource

from fedpact import data
from fedpact.cli.split_parts import (
    by_columns,
    by_rows,
    by_value,
    describe_vertical_job,
    describe_vertical_tables,
    quote,
)
from fedpact.data.partition import Rows
from fedpact.data.text_table import TextTable, read_text_table
from fedpact.errors import FedpactError
from fedpact.problem.vertical_input import COORDINATOR
from fedpact.report import figures
from fedpact.report.files import explain_write_errors
from fedpact.report.tables import print_table

#: way to split -> its required options, its optional ones
WAYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "iid": (("owners",), ()),
    "stratified": (("owners", "label"), ()),
    "label": (("owners", "label"), ("alpha",)),
    "classes": (("owners", "label", "classes"), ()),
    "quantity": (("owners",), ("alpha",)),
    "column": (("column",), ()),
    "vertical": ((), ("owners", "sizes", "identity", "group", "in_order")),
}


def _sizes(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    """Parse --sizes, such as "3,2,2"."""
    if value is None:
        return None
    try:
        return [int(size) for size in value.split(",")]
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a list of whole numbers such as 3,2,2.") from error


@click.command()
@click.argument("path", metavar="TABLE.csv", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--by", required=True, type=click.Choice(list(WAYS)), help="How to split: see above.")
@click.option("--owners", metavar="N", type=click.IntRange(1), help="How many; needed by all but column.")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder of the files.")
@click.option("--label", metavar="COLUMN", help="Counted at each owner; needed by stratified, label and classes.")
@click.option("--alpha", default=0.5, show_default=True, help="label, quantity: small is uneven, large is even.")
@click.option("--classes", metavar="K", type=click.IntRange(1), help="classes: labels at each owner.")
@click.option("--column", metavar="COLUMN", help="column: the one whose values are the owners.")
@click.option("--sizes", metavar="N,N,...", callback=_sizes, help="vertical: columns of each owner.  [default: even]")
@click.option("--id", "identity", metavar="COLUMN", default="id", show_default=True, help="vertical: in every file.")
@click.option("--group", metavar="COLUMN", help="vertical: stays with the coordinator, as --label does.")
@click.option("--in-order", is_flag=True, help="vertical: consecutive columns, not random ones.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="The same seed, the same split.")
@click.option("--name", default="owner", show_default=True, help="What an owner is called, before its number.")
@click.option("--plot", is_flag=True, help="Draw the split, as split.svg in the folder.")
@click.option("--plot-as", default="svg", show_default=True, type=click.Choice(["svg", "png", "pdf"]), help="Format.")
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
@click.pass_context
def split(
    ctx: click.Context,
    path: Path,
    by: str,
    owners: int | None,
    out: Path,
    label: str | None,
    alpha: float,
    classes: int | None,
    column: str | None,
    sizes: list[int] | None,
    identity: str,
    group: str | None,
    in_order: bool,
    seed: int,
    name: str,
    plot: bool,
    plot_as: str,
    force: bool,
) -> None:
    """Split one table into files of several owners, to try a federation before there is one.

    Writes a CSV file per owner, with cells exactly as in the table; prints who has what, and the lines that name the
    files in a job.

    \b
    iid         random rows, equally many per owner
    stratified  the same, with equally many of each label
    label       each label in proportions drawn from Dirichlet(alpha)
    classes     K labels per owner
    quantity    random rows, sizes drawn from Dirichlet(alpha)
    column      one owner per value of a column
    vertical    different columns of the same rows, with an id (numbered
                if absent); --label and --group stay with a coordinator

    \b
    fedpact split adult.csv --by iid --owners 5 --name bank --out banks
    fedpact split adult.csv --by label --label income --alpha 0.3 --owners 10 --out uneven --plot
    fedpact split digits.csv --by classes --label digit --classes 2 --owners 10 --out two-each
    fedpact split adult.csv --by quantity --alpha 1 --owners 10 --label income --out large-and-small
    fedpact split adult.csv --by column --column state --label income --out states
    fedpact split adult.csv --by vertical --sizes 6,4,3 --label income --out parties
    """
    _check_options(ctx, by)
    if plot:
        figures.figure_class()  # raises without matplotlib, before anything is written
    table = read_text_table(path)
    count = owners or len(sizes or ())
    names = [f"{name} {i}" for i in range(1, count + 1)]
    if by == "vertical":
        kept = list(dict.fromkeys(filter(None, (label, group))))
        made = by_columns(table, names, None if in_order else seed, sizes=sizes, identity=identity, kept=kept)
    elif by == "column":
        made = by_rows(table, by_value(table, column or ""), label)
    else:
        rows = _deal_rows(table, by, count, label or "", alpha, classes or 0, seed)
        made = by_rows(table, dict(zip(names, rows, strict=True)), label)
    files = file_names(made.files)
    texts = {file: made.files[owner] for owner, file in files.items()}
    if made.coordinator:
        texts[f"{COORDINATOR}.csv"] = made.coordinator
    picture = out / f"split.{plot_as}"
    targets = [out / file for file in texts]
    if plot:
        targets.append(picture)
    _check_targets(targets, path, force)
    _write(texts, path, out)
    if plot:
        figures.save(made.draw(f"{path.name} by {by}"), picture)
        click.echo(f"wrote {picture}", err=True)
    print_table(made.shown)
    click.echo(f"For a job in {out}:\n")
    if by == "vertical" and label:
        click.echo("\n".join(describe_vertical_job(table, label, group, identity)))
    click.echo("[owners]")
    for owner, file in files.items():
        click.echo(f"{quote(owner)} = {quote(file)}")
    if by == "vertical" and label:
        click.echo("\n".join(describe_vertical_tables(table, [identity, label, group or ""])))


def _deal_rows(table: TextTable, by: str, n: int, label: str, alpha: float, classes: int, seed: int) -> list[Rows]:
    """The row numbers of each of n owners."""
    if by == "iid":
        return data.iid(len(table.rows), n, seed)
    if by == "quantity":
        return data.by_quantity(len(table.rows), n, alpha, seed)
    labels = table.column(label)
    if by == "stratified":
        return data.stratified(labels, n, seed)
    if by == "classes":
        return data.by_classes(labels, n, classes, seed)
    return data.dirichlet(labels, n, alpha, seed)


def _check_options(ctx: click.Context, by: str) -> None:
    """Raise click.UsageError for an option that this way of splitting needs and lacks, or does not use."""
    flags = {param.name: param.opts[0] for param in ctx.command.params}
    needed, also = WAYS[by]
    for name in needed:
        if ctx.params[name] is None:
            raise click.UsageError(f"--by {by} needs {flags[name]}.")
    if by == "vertical" and ctx.params["owners"] is None and ctx.params["sizes"] is None:
        raise click.UsageError("--by vertical needs --owners or --sizes.")
    every = {name for way in WAYS.values() for names in way for name in names}
    for name in sorted(every.difference(needed, also, ["label"])):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{flags[name]} is not for --by {by}; leave it out.")


def _check_targets(targets: Iterable[Path], source: Path, force: bool) -> None:
    """Raise FedpactError if a file is in the way, or if the table itself is."""
    existing = [target for target in targets if target.exists()]
    if any(target.samefile(source) for target in existing):
        raise FedpactError(f"{source} itself would be overwritten; choose another folder with --out", code="FP-514")
    if existing and not force:
        found = f"{existing[0]} exists (files in the way: {len(existing)})"
        remedy = "overwrite with --force, or choose another folder with --out"
        raise FedpactError(f"{found}; {remedy}", code="FP-515")


def _write(texts: Mapping[str, str], source: Path, out: Path) -> None:
    """Write the files, and mention other CSV files in the folder. texts: file name -> text"""
    with explain_write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            (out / file).write_text(text, encoding="utf-8", newline="")
        others = sorted(path.name for path in out.glob("*.csv") if path.name not in texts and not path.samefile(source))
    if others:
        click.echo(f"{out} also holds {', '.join(others)}, not of this split", err=True)


def file_names(owners: Iterable[str]) -> dict[str, str]:
    """owner -> a file name that is valid on every system; no two differ only in case."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for owner in owners:
        stem = re.sub(r"[^\w .,()+=@-]", "_", owner)[:100].strip(" .") or "_"
        while stem.casefold() in taken:
            stem += "_"
        taken.add(stem.casefold())
        names[owner] = f"{stem}.csv"
    return names
