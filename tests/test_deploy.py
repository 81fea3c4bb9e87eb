"""The files in deploy/ say what the program understands: commands and options exist, nothing is root or holds keys.

No container engine is needed: instructions are parsed here. Units are verified by systemd where it is installed.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from fedpact.cli.main import COMMANDS

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink

from fedpact.engines.flower.site import _options

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
ROLES = ("site", "coordinator", "superlink")
#: Values of options that must not be in a file that everybody can read.
SECRET = re.compile(r"BEGIN [A-Z ]*PRIVATE KEY|[0-9a-f]{64}|password|passwd|token=", re.IGNORECASE)


def known_options(command: list[str]) -> set[str]:
    """Options of a command of ours, or of the SuperLink."""
    program = Path(command[0]).name
    if program == "flower-superlink":
        return {option for action in _parse_args_run_superlink()._actions for option in action.option_strings}
    assert program == "fedpact"
    name = command[1]
    if name not in COMMANDS:
        assert command[1:3] == ["site", "start"]  # calls `serve_site`, whose options these are
        return {option for action in _options()._actions for option in action.option_strings}
    found: Any = getattr(import_module(COMMANDS[name][0]), name)
    if name == "site":
        found = found.commands[command[2]]
    return {option for parameter in found.params for option in parameter.opts}


def check_command(command: list[str]) -> None:
    stated = {word for word in command if word.startswith("--")}
    assert stated - known_options(command) == set()
    assert len(stated) == sum(word.startswith("--") for word in command), "an option is stated twice"


# -------------------------------------------------------------------------------------------------------- containers


@dataclass
class Stage:
    """What a target of the Containerfile has, with what it inherits."""

    image: str
    user: str = ""
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: str = ""


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "Containerfile").read_text()
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line.strip()]
    return [(word, rest) for word, rest in pairs]


def stages() -> dict[str, Stage]:
    found: dict[str, Stage] = {}
    now = Stage("")
    for word, rest in instructions():
        if word == "FROM":
            image, _, name = rest.partition(" AS ")
            inherited = found.get(image, Stage(image))
            now = found[name] = Stage(inherited.image, inherited.user)
        elif word == "USER":
            now.user = rest
        elif word == "ENTRYPOINT":
            now.entrypoint = json.loads(rest)
        elif word == "CMD":
            now.command = json.loads(rest)
        elif word == "HEALTHCHECK":
            now.health = rest
    return found


def test_instructions_are_known_ones() -> None:
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "HEALTHCHECK", "ENTRYPOINT", "CMD", "EXPOSE"}
    assert {word for word, _ in instructions()} <= known  # no ADD: it fetches and unpacks


def test_images_are_pinned_by_tag() -> None:
    for name, stage in stages().items():
        assert re.fullmatch(r"python:\d+\.\d+\.\d+-[a-z-]+", stage.image), name


@pytest.mark.parametrize("role", ROLES)
def test_a_container_runs_as_nobody_special_a_command_that_exists(role: str) -> None:
    stage = stages()[role]
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", stage.user)
    check_command([*stage.entrypoint, *stage.command])
    if role == "coordinator":
        assert stage.health == "NONE"  # it runs a job and ends
    else:
        code = json.loads(stage.health.partition(" CMD ")[2])
        assert code[:2] == ["python", "-c"]
        compile(code[2], "healthcheck", "exec")


def test_the_health_of_a_site_is_asked_where_it_is_served() -> None:
    stage = stages()["site"]
    port = stage.entrypoint[stage.entrypoint.index("--metrics-port") + 1]
    assert f"http://127.0.0.1:{port}/healthz" in stage.health


def test_what_is_copied_exists_and_is_no_secret() -> None:
    names: list[str] = []
    for word, rest in instructions():
        if word == "FROM":
            names.append(rest.partition(" AS ")[2])
        if word != "COPY":
            continue
        parts = rest.split()
        if parts[0].startswith("--from="):
            assert parts[0].removeprefix("--from=") in names
            continue
        for source in parts[:-1]:
            assert (ROOT / source).exists()
            assert source in ("pyproject.toml", "README.md", "LICENSE", "src")  # all that a build needs


def test_the_extras_that_are_installed_exist() -> None:
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (asked,) = re.findall(r"\.\[([a-z,]+)\]", (DEPLOY / "Containerfile").read_text())
    assert set(asked.split(",")) <= extras.keys()
    (stated,) = re.findall(r"'\.\[([a-z,]+)\]'", (DEPLOY / "README.md").read_text())
    assert stated == asked


def test_services_are_hardened_and_built_from_targets_that_exist() -> None:
    yaml = pytest.importorskip("yaml")
    content = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    targets = set()
    for service in content["services"].values():
        targets.add(service["build"]["target"])
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).resolve().is_file()
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not service.keys() & {"privileged", "cap_add", "network_mode", "pid", "devices", "user"}
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert source in content["volumes"] or source.startswith("./")
    assert targets == set(ROLES)
    ports = {name: service["ports"] for name, service in content["services"].items() if "ports" in service}
    assert ports == {"superlink": ["8000:8000"]}  # sites and coordinators open none


# --------------------------------------------------------------------------------------------------------------- units

HARDENED = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectControlGroups": "yes",
    "RestrictSUIDSGID": "yes",
    "CapabilityBoundingSet": "",
    "UMask": "0077",
}


def read_unit(path: Path) -> dict[str, list[str]]:
    """The directives of a unit, each with all of its values."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            key, equals, value = line.partition("=")
            assert equals, line
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_is_hardened_and_its_command_exists(path: Path) -> None:
    unit = read_unit(path)
    assert {key: unit[key] for key in HARDENED} == {key: [value] for key, value in HARDENED.items()}
    assert unit["User"] == unit["Group"]
    assert unit["User"] != ["root"]
    (command,) = unit["ExecStart"]
    check_command(shlex.split(command))
    state = f"/var/lib/{unit['StateDirectory'][0]}"
    writable = unit["ReadWritePaths"][0].split()
    assert state in writable
    assert all(place.startswith(("/var/lib/fedpact-", "/var/log/fedpact-")) for place in writable)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_a_unit_and_rates_it_as_safe(path: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("fedpact", "flower-superlink"):
        (programs / name).symlink_to(sys.executable)
    unit = tmp_path / path.name.replace("@.", "@trial.")
    unit.write_text(path.read_text().replace("/opt/fedpact/bin/", f"{programs}/"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, complaints) == (0, []), done.stderr
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert rated.returncode == 0, rated.stdout[-200:] + rated.stderr


def test_no_file_holds_a_secret_and_the_readme_names_them_all() -> None:
    files = [path for path in DEPLOY.rglob("*") if path.is_file()]
    readme = (DEPLOY / "README.md").read_text()
    for path in files:
        assert not SECRET.search(path.read_text()), path.name
        assert path.name == "README.md" or path.name in readme
