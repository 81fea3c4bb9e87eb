"""The command line: this file only registers; each command has a file of its own, imported when it is called."""

from __future__ import annotations

import importlib
import sys

import click

#: command -> (module, one line for --help); a module holds a click command of the same name.
COMMANDS = {
    "demo": ("fedpact.cli.demo", "Train under a constraint at ten hospitals, in process, and show the certificate."),
    "init": ("fedpact.cli.init", "Write an example job with tables of three hospitals, to run at once."),
    "run": ("fedpact.cli.run", "Run a job: train under its constraints and keep model, certificate and history."),
    "split": ("fedpact.cli.split", "Deal one table to several owners: by rows, labels, sizes, a column, or columns."),
    "predict": ("fedpact.cli.predict", "Classify the rows of a table with the model of a run."),
    "bench": (
        "fedpact.cli.bench",
        "Measure the methods side by side: exchanges, time, growth with owners and columns.",
    ),
    "report": ("fedpact.cli.report", "Write a finished run as one page: verdict, certificate, prices, charts."),
    "replicate": ("fedpact.cli.replicate", "Run an experiment of a paper again, its numbers beside ours."),
}


class _Lazy(click.Group):
    """Shows every command in --help without importing it, so that --help is instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[name][0]), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fedpact")
def cli() -> None:
    """Federated learning under constraints that every data owner agreed to.

    Owners keep their rows; the model comes back with a checked certificate: how far from stationary, how far from
    feasible, and the price of each constraint. Start with: fedpact demo
    """


def main() -> None:
    """Run the command line. Exit codes: 0 solved, 1 not solved, 2 misuse, 130 interrupted."""
    from fedpact.errors import FedpactError

    try:
        cli(prog_name="fedpact", standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except FedpactError as error:
        click.echo(f"fedpact: {error}", err=True)
        sys.exit(2)
