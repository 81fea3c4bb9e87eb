"""evidence.json of a run folder: what the owners signed, and the digest of every other file.

There is one way to write it: JSON with sorted keys, an indent of one, and its own digest at the end, signed where the
coordinator has a key. A file with a byte changed cannot be read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedpact.errors import WireError
from fedpact.federation.evidence import canonical
from fedpact.federation.identity import Identity
from fedpact.fitting.evidence import Evidence

FILE = "evidence.json"
FORMAT = "fedpact-evidence-1"
#: Written by `fedpact report`, later and as often as one likes.
REPORT = "report.html"
#: Written by `fedpact evaluate`, likewise; nobody signs it.
EVALUATION = "evaluation.json"
#: Of the coordinator; empty where it has no key.
SIGNATURE = re.compile(r"([0-9a-f]{128})?")
#: What the file holds besides the fields of `Evidence`.
AROUND = ("format", "job_file", "files", "key", "digest", "signature")


def write_evidence(folder: Path, evidence: Evidence, job_file: Path, identity: Identity | None) -> None:
    """Write the file; identity: the coordinator's."""
    content = {
        "format": FORMAT,
        "job_file": Path(os.path.relpath(job_file, folder)).as_posix(),
        "files": {name: digest_of_file(folder / name) for name in files_of(folder)},
        "key": "" if identity is None else identity.public,
        **evidence.to_json(),
    }
    body = canonical(content)
    content["digest"] = sha256(body).hexdigest()
    content["signature"] = "" if identity is None else identity.sign("evidence", body).hex()
    (folder / FILE).unlink(missing_ok=True)
    private = os.open(folder / FILE, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)  # it holds owners' own numbers
    with open(private, "wb") as target:
        target.write(_written(content))


def read_evidence(folder: Path) -> tuple[Evidence, Mapping[str, Any]]:
    """The evidence, and the whole content of the file. WireError when a byte is not as it was written."""
    try:
        data = (folder / FILE).read_bytes()
        content = json.loads(data)
        if data != _written(content):
            raise ValueError("this is not how it is written")
        evidence = Evidence.from_json(content)
        if content["format"] != FORMAT or content.keys() != {*AROUND, *evidence.to_json()}:
            raise ValueError(f"this is not {FORMAT}")
        if not SIGNATURE.fullmatch(content["signature"]) or bool(content["key"]) != bool(content["signature"]):
            raise ValueError("its signature is none")
        if content["digest"] != sha256(signed_part(content)).hexdigest():
            raise ValueError("its digest is of another content")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireError(f"{folder / FILE} was changed ({error}); restore it from a copy", code="FP-WIRE-630") from error
    return evidence, content


def signed_part(content: Mapping[str, Any]) -> bytes:
    """What digest and signature are of."""
    return canonical({name: value for name, value in content.items() if name not in ("digest", "signature")})


def files_of(folder: Path) -> Iterator[str]:
    """All files of a run folder that evidence speaks of, by their path inside it."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in (FILE, REPORT, EVALUATION):
            yield name


def links_of(folder: Path) -> Iterator[str]:
    """Links in a run folder: what they lead to may be another thing for everybody who looks."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            yield path.relative_to(folder).as_posix()


def read_strictly(path: Path) -> Any:
    """A JSON file. ValueError where a key is there twice, or a number is none: readers would differ about it."""
    return json.loads(path.read_text(), object_pairs_hook=_distinct, parse_constant=_refuse)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number")


def digest_of_file(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _written(content: Any) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
