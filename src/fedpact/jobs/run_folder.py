"""The folder of a run: a finished run in it stays whole until another one has ended.

A run that is to replace a finished one (`--force`, or `--resume` of one that is finished) works in a folder beside it,
and the two are swapped when it ends, in one step of the file system: whenever the process is killed, the old run or
the new one is there, whole.

    run        what the job states
    run.next   a run at work in its place; `--resume` continues it. It is deleted if it ended before its first exchange
    run.away   the old run while it is deleted, or on a file system that cannot swap folders
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedpact.errors import CheckpointError, FedpactError, OptionError
from fedpact.federation.wire import lock
from fedpact.jobs.evidence_file import EVALUATION, REPORT
from fedpact.jobs.evidence_file import FILE as EVIDENCE
from fedpact.report.record import FILE, Record
from fedpact.report.tracking import EVENTS, LOG, forget
from fedpact.tasks.base import digest_of_files
from fedpact.tasks.model import MODULE_FILE

CHECKPOINT = "checkpoint"
TEXT_LOG = "log.txt"
#: Every message of the run, where the job asks for it.
MESSAGES = "messages.log"
#: The task as it was at last, and where its job is: what `fedpact evaluate` needs beside the solution.
TASK = "task.json"
#: Coefficients and prices with their standard errors, where the job asks for them.
COEFFICIENTS = "coefficients.csv"
#: Folder of the parties' pieces of a vertical model.
PIECES = "pieces"
MODEL = "model.json"
ARRAYS = "model.npz"
SOLUTION = "solution.npz"
CERTIFICATE = "certificate.json"
LEDGER = "ledger.json"
HISTORY = "history.csv"
#: What depends on the answer; a folder with FILE has all of it.
RESULTS = (
    FILE,
    EVIDENCE,
    EVALUATION,
    MODEL,
    ARRAYS,
    TASK,
    COEFFICIENTS,
    SOLUTION,
    CERTIFICATE,
    LEDGER,
    HISTORY,
)
#: Everything in the folder that is of the run; other files there are their user's.
WRITTEN = (*RESULTS, MODULE_FILE, REPORT, MESSAGES, TEXT_LOG, CHECKPOINT, PIECES, LOG, EVENTS)
#: Numbers of errors of a disk that takes no more: it is full, or a quota or a limit of files is reached.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Status of a run that `--resume` continues.
STOPPED = ("interrupted", "client_lost")

_SWAP_ON_LINUX = 2  # RENAME_EXCHANGE of renameat2
_SWAP_ON_MACOS = 2  # RENAME_SWAP of renamex_np
_HERE = -100  # AT_FDCWD


def beside(folder: Path, suffix: str = ".next") -> Path:
    """The folder in which a run is at work that is to replace the one in this folder."""
    real = folder.resolve()
    return real.with_name(real.name + suffix)


def is_finished(folder: Path) -> bool:
    """Whether the run in this folder came to its end."""
    if not (folder / FILE).exists():
        return False
    try:
        return Record.load(folder).status not in STOPPED
    except FedpactError:
        return True  # damaged, or of another version: not to be touched either


def is_signed(folder: Path) -> bool:
    """Whether it was signed by its owners, too: there is nothing to continue."""
    return (folder / EVIDENCE).exists() and is_finished(folder)


def holds_run(folder: Path) -> bool:
    """Whether there is something to lose: a record, or exchanges with the owners."""
    return (folder / FILE).exists() or exchanges_of(folder) > 0


def exchanges_of(folder: Path) -> int:
    """How many exchanges the checkpoint of the run has, beside those that only agree on masks."""
    try:
        head = json.loads((folder / CHECKPOINT / "checkpoint.json").read_text())
        return int(head.get("exchanges", head["rounds"]))
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 1  # damaged: whoever wants to continue is told


def choose(folder: Path, resume: bool, force: bool) -> Path:
    """Where the run is to work: in this folder or beside it. OptionError if a run is there, and no option says what to
    do with it."""
    waiting = beside(folder)
    there = holds_run(waiting) and not _is_left_over(waiting, folder)
    if (holds_run(folder) or there) and not (resume or force):
        raise OptionError(
            f"{folder} holds a run already; --resume continues it, --force replaces it when the new one has ended, or "
            "state another folder",
            code="FP-OPTION-395",
        )
    replaces = there or (holds_run(folder) if force else is_finished(folder))
    return waiting if replaces else folder


def check_run_folder(folder: Path, resume: bool, force: bool) -> None:
    """OptionError unless a run may begin, before anything is asked of anybody."""
    with _writing(folder):
        _check_idle(folder)
        choose(folder, resume, force)


def folder_of(folder: Path) -> Path:
    """Where the record of the latest run is: in this folder, or beside it while a finished one is in its place."""
    waiting = beside(folder)
    return waiting if (waiting / FILE).exists() else folder


def load_run(folder: Path) -> Record:
    """The record of a run. FedpactError where there is none, or the model in the folder is another one."""
    record = Record.load(folder)
    if record.model and record.model != digest_of_model(folder):
        raise FedpactError(
            f"the model in {folder} is not that of its run (run.json); restore it from a copy, or run the job again",
            code="FP-483",
        )
    return record


def digest_of_model(folder: Path) -> str:
    """Of the files of the model; empty where there is none."""
    files = [folder / name for name in (MODEL, ARRAYS, MODULE_FILE) if (folder / name).exists()]
    return digest_of_files(*files) if (folder / MODEL).exists() else ""


@contextmanager
def explain_full_disk(folder: Path) -> Iterator[None]:
    """FedpactError in the place of an OSError of a disk that takes no more."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise FedpactError(
            f"{error.filename or folder} cannot be written ({error.strerror}); free some space, then continue the run "
            "with --resume: what came back so far is in its checkpoint, and a finished run in the folder is as it was",
            code="FP-484",
        ) from error


@contextmanager
def open_run_folder(folder: Path, resume: bool, force: bool, needed: Iterable[Path] = ()) -> Iterator[Path]:
    """The folder in which a run is to work; it is the stated one in the end, when the run has come to its end.

    resume: continue what is there; force: replace it; needed: files that the run reads

    A run that ends before its first exchange leaves what was there, and nothing that stops the next run.
    Raises OptionError when the folder cannot be written, or holds a run that is not to be touched.
    """
    with _writing(folder):
        _recover(folder)
        place = choose(folder, resume, force)
        if place != folder:
            _check_replaceable(folder, needed)
        before = _make_ready(place, folder, resume and not force)
    try:
        yield place
    except BaseException:
        if before is not None and exchanges_of(place) <= before:
            shutil.rmtree(place if place != folder else place / CHECKPOINT, ignore_errors=True)
        raise
    if place != folder and (is_finished(place) or not is_finished(folder)):
        _swap(place, folder)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """OptionError in the place of an OSError."""
    try:
        yield
    except OSError as error:
        raise OptionError(
            f"the output folder {folder} cannot be written ({error}); state another one", code="FP-OPTION-396"
        ) from error


def _check_replaceable(folder: Path, needed: Iterable[Path]) -> None:
    """OptionError where another folder cannot take the place of this one."""
    real = folder.resolve()
    if inside := [path for path in needed if path.resolve().is_relative_to(real)]:
        raise OptionError(
            f"the output folder {folder} holds {inside[0].name}, which the run reads, so that it cannot be "
            'replaced as a whole; give runs a folder of their own, such as [output] folder = "run"',
            code="FP-OPTION-483",
            key="folder",
        )
    if real.is_mount():
        raise OptionError(
            f"the output folder {folder} is where a disk is mounted, so that it cannot be replaced; state a folder "
            "in it",
            code="FP-OPTION-484",
            key="folder",
        )


def _make_ready(place: Path, folder: Path, resume: bool) -> int | None:
    """Make the folder in which the run is to work.

    Returns how many exchanges are on record in what was made, None if it is not new: a run that is continued.
    """
    _check_idle(folder)
    _check_idle(place)
    before = None if resume and holds_run(place) else 0
    if before is not None and place == folder:
        shutil.rmtree(place / CHECKPOINT, ignore_errors=True)  # without an exchange
        for name in (FILE, EVIDENCE, EVALUATION, MESSAGES):
            (place / name).unlink(missing_ok=True)
        forget(place)
    elif before is not None:
        shutil.rmtree(place, ignore_errors=True)
        if resume:
            shutil.copytree(folder, place, symlinks=True, ignore=shutil.ignore_patterns(*RESULTS))
            before = exchanges_of(place)
        elif folder.exists():
            _copy_foreign(folder, place)
    place.mkdir(parents=True, exist_ok=True)
    (place / TEXT_LOG).open("a").close()
    return before


def _check_idle(folder: Path) -> None:
    """CheckpointError while another process is at work in this folder."""
    try:
        with (folder / CHECKPOINT / "rounds.log").open("rb") as log:
            lock(log)
    except (FileNotFoundError, NotADirectoryError):
        return
    except BlockingIOError as error:
        raise CheckpointError(
            f"{folder} is in use: another run is at work in it; let it end, or state another folder",
            code="FP-CHECKPOINT-483",
        ) from error


def _copy_foreign(source: Path, target: Path) -> None:
    """Copy what is of no run, where it is missing or older."""
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        other = target / path.name
        if path.name in WRITTEN or (other.exists() and other.stat().st_mtime >= path.stat().st_mtime):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, other, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(path, other, follow_symlinks=False)


# ------------------------------------------------------------------------------------------------------------ the swap


def _swap(new: Path, folder: Path) -> None:
    """Put the new run in the place of the old one, which is deleted."""
    real = folder.resolve()
    for path in new.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())  # the old run is deleted below: power may fail then
    if not real.exists():
        new.rename(real)
    elif not _exchange(new, real):
        real.rename(beside(folder, ".away"))
        new.rename(real)
        beside(folder, ".away").rename(new)
    _delete_left_over(new, real)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step, which cannot be interrupted; False where the system cannot."""
    a, b = os.fsencode(one), os.fsencode(other)
    try:
        system = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            return bool(system.renamex_np(a, b, _SWAP_ON_MACOS) == 0)
        return bool(system.renameat2(_HERE, a, _HERE, b, _SWAP_ON_LINUX) == 0)
    except (AttributeError, OSError, TypeError):  # an older system, or another one
        return False


def _recover(folder: Path) -> None:
    """Complete a swap that was interrupted by the end of its process."""
    away = beside(folder, ".away")
    if away.exists() and not folder.exists():
        away.rename(folder.resolve())
    if away.exists():
        _copy_foreign(away, folder)
        shutil.rmtree(away)
    if _is_left_over(beside(folder), folder):
        _delete_left_over(beside(folder), folder)


def _is_left_over(old: Path, folder: Path) -> bool:
    """Whether this is the old run, and the new one is in its place: that began later."""
    started = _started(old)
    now = _started(folder)
    return started is not None and now is not None and started <= now


def _started(folder: Path) -> str | None:
    """When a run began that has ended; else None."""
    try:
        record = Record.load(folder)
    except FedpactError:
        return None
    return None if record.status in STOPPED else record.started


def _delete_left_over(old: Path, folder: Path) -> None:
    _copy_foreign(old, folder)
    away = beside(folder, ".away")
    old.rename(away)  # in one step: half of a run could be taken for one at work
    shutil.rmtree(away)
