"""`fedpact bench attacks`: what a coordinator that does not keep to the protocol gets out of sites with their rules."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import click

from fedpact_experiments.attacks.cost import costs
from fedpact_experiments.attacks.recover import OFF, PLANS, RUNS, membership, outcomes

#: Rules that numbers of one owner alone need switched off, to be told exactly and often.
TOLD_OFF = f"{OFF['effective_rows']}\n[limit]\nmodel_size = 1e300\nsmall_cells = 0\nquestions = 1000\n"


@click.command()
@click.option("--trials", default=40, show_default=True, help="Persons whose membership is guessed.")
def attacks(trials: int) -> None:
    """Try to recover rows, and the membership of a person, from three hospitals of 80 rows each in five runs.

    The coordinator has a key that the hospitals accept, and is free to choose jobs, tasks and orders. Every attack is
    tried at sites with the rules of their template, and with those switched off that stand in its way; last stands what
    ended it. A row counts as recovered when every feature is within 1e-4 deviations. At the end stands what the rules
    cost honest runs: exchanges, and bytes on the way with charters and signatures.
    """
    logging.disable(logging.CRITICAL)  # sites log every refusal
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        click.echo(f"rows recovered in {RUNS} runs, exactly and roughly (within 0.02); rules: switched off")
        for one in outcomes(folder / "rows", PLANS):
            rows = f"{one.rows:3} and {one.roughly:3} of {one.of}"
            click.echo(f"{one.attack:30} {one.off:26} {rows}  {one.asked:4} answers  {one.ended}")
        click.echo(f"where a person was treated, of two hospitals; {trials} persons")
        for number, (rules, size, words) in enumerate(
            (("", 8.0, "none"), ("", 1e6, "none"), (TOLD_OFF, 1e6, "effective_rows, model_size, small_cells"))
        ):
            share = membership(folder / f"membership {number}", rules, size, trials)
            click.echo(f"models of size {size:<14g} {words:26} {share:.0%} right")
        click.echo("an honest run of the three, by what it bounds")
        for cost in costs(folder / "honest"):
            click.echo(f"{cost.job:10} {cost.sites:30} {cost.exchanges:4} exchanges  {cost.bytes:9,} bytes")
