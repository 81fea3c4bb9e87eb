"""The command line: this file only registers; each command has a file of its own, imported when it is called."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: command -> (module, its line in --help); the module holds a click command of the same name.
COMMANDS = {
    "demo": ("fedpact.cli.demo", "Train under a constraint at ten hospitals, in process, and show the certificate."),
    "init": ("fedpact.cli.init", "Write an example job, or that of your own table, to run at once."),
    "profile": ("fedpact.cli.profile", "Describe the tables of a job, and say all that is wrong with them."),
    "run": ("fedpact.cli.run", "Run a job: train under its constraints; writes model, certificate and history."),
    "sites": ("fedpact.cli.sites", "List the sites that are online at a SuperLink, with version and policy."),
    "split": ("fedpact.cli.split", "Split one table into files of several owners, by rows or by columns."),
    "evaluate": ("fedpact.cli.evaluate", "Measure the model of a run on tables that nobody trained on."),
    "predict": ("fedpact.cli.predict", "Classify the rows of a table with the model of a run."),
    "site": ("fedpact.cli.site", "Run a site: its key, its policy, its process, its approvals and its log."),
    "verify": ("fedpact.cli.verify", "Check that a run is what its owners signed."),
    "report": ("fedpact.cli.report", "Write the report of a finished run: verdict, certificate, prices, charts."),
}
#: Entry points of this group, in any installed package, are commands too.
GROUP = "fedpact.commands"
#: Commands of the package fedpact-experiments: their lines in --help, and names for the hint to install it.
EXPERIMENTS = {
    "bench": "Measure the methods side by side: exchanges, time, growth with owners and columns.",
    "replicate": "Repeat an experiment of a paper and compare the numbers.",
}


def _installed() -> dict[str, EntryPoint]:
    """Commands of other packages, by name."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in COMMANDS}


class _Lazy(click.Group):
    """Imports a command when it is called, so that --help is instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *_installed()]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        command: click.Command | None = None
        installed = _installed()
        if name in COMMANDS:
            module = importlib.import_module(COMMANDS[name][0])
            command = getattr(module, name)
        elif name in installed:
            command = installed[name].load()
        elif name in EXPERIMENTS:
            raise click.UsageError(
                f"'fedpact {name}' is a command of the package fedpact-experiments, which is not installed; "
                "from a clone of the repository: pip install -e experiments",
                ctx,
            )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        texts = {name: text for name, (_, text) in COMMANDS.items()}
        for name, entry in _installed().items():
            texts[name] = EXPERIMENTS.get(name) or f"A command of {entry.value.partition('.')[0]}."
        with formatter.section("Commands"):
            formatter.write_dl(list(texts.items()))


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
        click.echo(f"fedpact: {error} [{error.code}]", err=True)
        sys.exit(2)
