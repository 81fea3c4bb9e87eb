"""`fedpact verify`: check the evidence of a run."""

from __future__ import annotations

import json
import sys
import tomllib
from dataclasses import asdict, replace
from pathlib import Path

import click

from fedpact.engines.flower.submit import ask_on_flower
from fedpact.errors import OptionError
from fedpact.federation import Session
from fedpact.federation.identity import check_public_keys
from fedpact.jobs import JobFile, read_job
from fedpact.jobs.evidence_file import FILE
from fedpact.jobs.running import session_settings
from fedpact.jobs.verification import ask_owners, check_report, compare_with, verify_run
from fedpact.report.assurance import describe_evidence, explain_failure
from fedpact.report.record import Failed, Record, Verification

roster_option = click.option(
    "--roster", type=click.Path(path_type=Path), help="TOML file of public keys, name = KEY; server is the coordinator."
)
key_option = click.option("--key", "keys", multiple=True, metavar="OWNER=KEY", help="A public key that you know.")


#: What the first line says, and the exit code.
VERIFIED = "verified"
IN_PART = "VERIFIED IN PART"
NOT_VERIFIED = "NOT VERIFIED"
EXIT = {VERIFIED: 0, NOT_VERIFIED: 1, IN_PART: 3}


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@roster_option
@key_option
@click.option("--ask", is_flag=True, help="Let the owners recompute what they signed.")
@click.option("--job", type=click.Path(path_type=Path), help="The job file, for --ask and the coordinator's table.")
@click.option("--with", "others", multiple=True, type=click.Path(path_type=Path), help="Other evidence of this run.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def verify(
    run: Path,
    roster: Path | None,
    keys: tuple[str, ...],
    ask: bool,
    job: Path | None,
    others: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Check that a run is what its owners signed; RUN is its output folder.

    Neither owners nor data are needed: every file is as it was when the run ended, every owner signed, what they signed
    is of this run, and model, measures and certificate follow from it. Whose keys these are only you can know: state
    them by --roster or --key. Without them the keys are those that the folder names: it is consistent, no more.

    With --ask every owner of --job recomputes what it signed, from the table that it has now. Sites of a SuperLink are
    asked where their job can be run, and by their policy it counts as a run.

    With --with OTHER, the evidence is compared with another of the same run: a folder that somebody else was given, or
    what an owner kept of it (RUN.signed in its state folder).

    \b
    fedpact verify hospitals/run --roster keys.toml
    fedpact verify hospitals/run --ask --job hospitals/job.toml

    Exit code 0 when verified, 1 when not, 2 when RUN holds no run or a key cannot be read, 3 when it is verified in
    part: the job gives the coordinator a table of its own, whose term of the certificate is its word. State --job where
    that table is to recompute the term.
    """
    if not (run / FILE).exists():
        Record.load(run)  # is it a run at all?
    if ask and job is None:
        raise OptionError(
            "the owners are asked by a job, which may name code, tables and keys: state the one that you trust, --job "
            "JOB; the run folder's own word is not taken for it",
            code="FP-OPTION-672",
            key="job",
        )
    file = None if job is None else read_job(job)
    found = verify_run(run, read_keys(roster, keys), file)
    if found.holds:
        found = replace(found, failed=tuple(check_report(run, found)))
    for other in others if found.holds else ():
        found = replace(found, failed=(*found.failed, *compare_with(run, other)))
    if ask and file is not None and found.holds:
        found = replace(found, asked=True, failed=tuple(_ask(run, file)))
    if as_json:
        click.echo(json.dumps({"verified": found.verified, **asdict(found)}, indent=1))
    else:
        _show(found)
    sys.exit(EXIT[verdict_of(found)])


def verdict_of(found: Verification) -> str:
    if not found.holds:
        return NOT_VERIFIED
    return VERIFIED if found.verified else IN_PART


def _show(found: Verification) -> None:
    click.echo(verdict_of(found))
    for sentence in describe_evidence(found):
        click.echo(sentence)
    for one in found.failed:
        click.echo(explain_failure(one))


def read_keys(roster: Path | None, keys: tuple[str, ...]) -> dict[str, str]:
    """Public keys by name, from a file and from options. OptionError for what is none."""
    stated: dict[str, object] = {}
    if roster is not None:
        try:
            stated = tomllib.loads(roster.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError, RecursionError) as error:
            raise OptionError(f"{roster} cannot be read as TOML ({error})", code="FP-OPTION-634") from error
    for one in keys:
        name, _, public = one.rpartition("=")
        stated[name] = public
    return check_public_keys(stated, str(roster or "--key"))


def _ask(run: Path, file: JobFile) -> list[Failed]:
    if file.superlink:
        return ask_on_flower(run, file)
    if not file.keys:
        raise OptionError(f"{file.path} has no table [keys]: its owners cannot sign", code="FP-OPTION-636")
    with Session(file.solve.get("engine"), **session_settings(file)) as session:
        return list(ask_owners(run, file, session))
