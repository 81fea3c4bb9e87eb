"""`fedpact site`: what an administrator does at a site: its key, its policy, its process, its log."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from fedpact.cli.site_words import describe_job, describe_releases
from fedpact.errors import CheckpointError, OptionError, install
from fedpact.federation.audit import read_log
from fedpact.federation.gate import approval_file
from fedpact.federation.identity import Identity
from fedpact.federation.policy import SitePolicy, describe, example, read_policy, sign_roster
from fedpact.federation.releases import Releases
from fedpact.jobs.site import audit_folder, open_site

FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def site() -> None:
    """Run a site: an owner's own machine, which decides what may leave it.

    \b
    fedpact site key site.pem        make the site's key; its public half goes to the others
    fedpact site init site.toml      write a policy with comments, to fill in
    fedpact site check site.toml     read it, and say in words what it allows
    fedpact site start site.toml     connect to the SuperLink and answer
    fedpact site approve site.toml   look at jobs that wait for a person
    fedpact site ledger site.toml    what has left the table, in sentences, and what is left of its budget
    fedpact site log site.toml       what was asked, answered and refused; checks the chain
    """


@site.command()
@click.argument("file", type=FILE)
def key(file: Path) -> None:
    """Make a private key in FILE, or read the one that is there, and print its public key.

    The private key stays where it is, readable by you only. The public key is how the others know you: sites list it
    under [peers], or under [coordinators] when it is the coordinator's; jobs list it under [roster].
    """
    identity = Identity.load(file) if file.exists() else Identity.create(file)
    click.echo(identity.public)


@site.command()
@click.argument("roster", type=FILE)
@click.option("--key", "key_file", type=FILE, required=True, help="Private key of who answers for the list.")
def sign(roster: Path, key_file: Path) -> None:
    """Sign ROSTER, lines of the form "hospital 1" = "public key", so that sites need not list their peers each.

    They state roster = "..." and roster_by = "your public key" under [site]. The signature is written beside the file.
    """
    click.echo(sign_roster(roster, Identity.load(key_file)))


@site.command()
@click.argument("file", type=FILE)
def init(file: Path) -> None:
    """Write a site.toml with a comment on every key, to fill in."""
    if file.exists():
        raise OptionError(f"{file} is there already; choose another name", code="FP-OPTION-624")
    file.write_text(example())
    click.echo(f"{file}: fill it in, then: fedpact site check {file}")


@site.command()
@click.argument("file", type=FILE)
def check(file: Path) -> None:
    """Read a site.toml strictly, open what it names, and say in words what it allows."""
    policy = read_policy(file)
    identity = Identity.load(policy.key)
    if not policy.data.is_file():
        raise OptionError(f"{file}: its table {policy.data} is not there", code="FP-OPTION-625")
    click.echo(f"{policy.name}, key {identity.public}")
    for line in describe(policy):
        click.echo(f"- {line}")
    click.echo(f"digest of the policy: {policy.digest}")


@site.command()
@click.argument("file", type=FILE)
@click.option("--superlink", required=True, metavar="HOST:PORT", help="The SuperLink's address.")
@click.option("--root-certificates", type=FILE, help="Certificate authority of the SuperLink (PEM).")
@click.option("--insecure", is_flag=True, help="Without TLS; only for trials on one machine.")
@click.option("--auth-supernode-private-key", type=FILE, help="The site's key for Flower: EC, in OpenSSH format.")
@click.option("--metrics-port", type=int, help="Serve /metrics and /healthz at this port of 127.0.0.1.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--log-file", type=FILE, help="Write the log there, rotated, instead of to standard error.")
def start(file: Path, **options: Any) -> None:
    """Connect to the SuperLink and answer orders that the policy allows, until it is ended.

    Opens no port, unless metrics are asked for, and those on this machine only.
    """
    try:
        from fedpact.engines.flower.site import serve_site
    except ImportError as error:
        raise OptionError(f"a site needs the package flwr: {install('flower')}", code="FP-OPTION-626") from error
    open_site(file)  # a file that is not right is told here, not in the answer to an order
    policy = read_policy(file)
    config = {"name": policy.name, "policy": str(file.absolute()), "state-path": str(policy.state.absolute())}
    sys.exit(serve_site(config, **options))


@site.command()
@click.argument("file", type=FILE)
@click.argument("digest", required=False)
@click.option("--all", "show_all", is_flag=True, help="Every key that the job states, too.")
def approve(file: Path, digest: str | None, show_all: bool) -> None:
    """Show the jobs that wait for a person, or approve the one with this DIGEST (its first digits are enough).

    A job waits where the policy asks for approval, and where the last run about its label was of other owners.
    It is approved as it is stated: task, bounds, columns, method and tolerance. Another word is another digest.
    """
    policy = read_policy(file)
    waiting = _waiting(policy)
    if digest is None:
        for job, entry in waiting.items():
            click.echo(job)
            for line in describe_job(policy, entry):
                click.echo(f"  {line}")
            if show_all:
                for name, value in entry["stated"].items():
                    click.echo(f"  {name} = {json.dumps(value, ensure_ascii=False)}")
        if not waiting:
            click.echo("no job is waiting")
        return
    found = [job for job in waiting if job.startswith(digest)]
    if len(found) != 1:
        raise OptionError(
            f"{len(found)} of the jobs that wait begin with {digest!r}; `fedpact site approve {file}` lists them",
            code="FP-OPTION-627",
        )
    target = approval_file(policy, found[0])
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    target.write_text(f"{getpass.getuser()} {datetime.now(UTC).isoformat(timespec='seconds')}\n")
    click.echo(f"approved {found[0]}")


def _waiting(policy: SitePolicy) -> dict[str, dict[str, Any]]:
    """Jobs that were asked for and not approved yet, by digest."""
    entries = {e["job"]: e for e in read_log(audit_folder(policy)) if e["event"] == "await approval"}
    return {job: entry for job, entry in entries.items() if not approval_file(policy, job).exists()}


@site.command()
@click.argument("file", type=FILE)
@click.option("--full", is_flag=True, help="Every answer, a line each.")
def ledger(file: Path, full: bool) -> None:
    """Print what has left the table, run by run, and what is left of its budget; checks the log's chain."""
    policy = read_policy(file)
    try:
        entries = list(read_log(audit_folder(policy)))
    except CheckpointError as error:
        click.echo(f"fedpact: {error} [{error.code}]", err=True)
        sys.exit(1)
    first, *runs = describe_releases(policy, Releases(entries))
    click.echo(first)
    for line in runs:
        click.echo(f"- {line}")
    if full:
        for entry in entries:
            if entry["event"] == "answer":
                click.echo(_line(entry))


@site.command()
@click.argument("file", type=FILE)
@click.option("--run", "run_id", help="Only this run.")
@click.option("--refused", is_flag=True, help="Only what was refused.")
@click.option("--json", "as_json", is_flag=True, help="The lines as they stand in the log.")
def log(file: Path, run_id: str | None, refused: bool, as_json: bool) -> None:
    """Print the audit log, oldest first, and check its chain. Exit code 1 when it was changed."""
    try:
        for entry in read_log(audit_folder(read_policy(file))):
            if run_id not in (None, entry.get("run")) or (refused and entry["event"] != "refuse"):
                continue
            click.echo(json.dumps(entry, ensure_ascii=False) if as_json else _line(entry))
    except CheckpointError as error:
        click.echo(f"fedpact: {error} [{error.code}]", err=True)
        sys.exit(1)


def _line(entry: Mapping[str, Any]) -> str:
    facts = {name: value for name, value in entry.items() if name not in ("time", "event", "previous")}
    told = " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in facts.items())
    return f"{entry['time']}  {entry['event']:<7} {told}"
