"""`fedpact sites`: who is online at a SuperLink, and whether they can take part in a job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fedpact.engines.flower.submit import SuperLink
from fedpact.errors import OptionError
from fedpact.federation.protocol import PROTOCOL
from fedpact.jobs import read_job
from fedpact.report.tables import print_table, table


@click.command()
@click.argument("where", metavar="ADDRESS|JOB")
@click.option("--root-certificates", type=click.Path(path_type=Path), help="Certificate authority of the SuperLink.")
@click.option("--superexec-secret", type=click.Path(path_type=Path), help="Secret of a SuperLink that only relays.")
@click.option("--wait", default=10.0, show_default=True, help="Seconds that sites have for an answer.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def sites(
    where: str, root_certificates: Path | None, superexec_secret: Path | None, wait: float, as_json: bool
) -> None:
    """List the sites that are online at a SuperLink.

    ADDRESS is that of the SuperLink, such as 127.0.0.1:8000. A JOB, a TOML file, has its address, certificates and
    secret; its owners are listed first, also those that are not online.

    For every site: its name, the version of its fedpact, the protocol it speaks, and the digest of the policy that it
    enforces, which changes whenever its rules do. Nothing is asked about its data.

    \b
    fedpact sites job.toml
    fedpact sites superlink.example.org:8000 --root-certificates ca.crt --superexec-secret superexec.secret --json
    """
    superlink = SuperLink(where, root_certificates, superexec_secret)
    owners: tuple[str, ...] = ()
    if where.endswith(".toml"):
        file = read_job(where)
        if not file.superlink:
            raise OptionError(f"{where}: its owners are files, not sites of a SuperLink", code="FP-OPTION-671")
        owners = tuple(file.owners)
        superlink = SuperLink.of(file.superlink, file.flower)
    found = superlink.list_sites(wait)
    rows = [{**site, "online": True} for site in found]
    rows += [{"name": owner, "online": False} for owner in owners if owner not in {site["name"] for site in found}]
    rows.sort(key=lambda row: (row["name"] not in owners, row["name"]))
    if as_json:
        click.echo(json.dumps(rows, indent=1))
    else:
        show(rows)


def show(rows: list[dict[str, Any]]) -> None:
    """Print the sites as a table."""
    if not rows:
        click.echo("nobody is online")
        return
    lines = table("site", "fedpact", "protocol", "policy", "")
    for row in rows:
        if not row["online"]:
            lines.add_row(row["name"], "", "", "", "not online")
            continue
        note = ""
        if not row["version"]:
            note = "does not answer"
        elif row["protocol"] != PROTOCOL:
            note = f"speaks another protocol than this fedpact ({PROTOCOL})"
        lines.add_row(
            row["name"] or f"node {row['node']}", row["version"], str(row["protocol"]), row["policy"][:12], note
        )
    print_table(lines)
