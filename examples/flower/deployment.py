"""A Flower deployment on the loopback interface: certificates, a SuperLink, sites with registered keys, and its end.

Everything lives in one folder and every process is a child of this one: leaving the `with` block ends them all.
On separate machines the same commands apply, one per machine; `start_superlink` and `start_site` spell them out.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HOST = "127.0.0.1"
#: The name under which config.toml lists our SuperLink; the last argument of every `flwr` command.
CONNECTION = "loopback"
SCRIPTS = Path(sys.executable).parent
Setting = str | int | float | bool


class DeploymentError(RuntimeError):
    """A part of the deployment did not start, or a command failed; the message ends with its output."""


@dataclass(frozen=True)
class Run:
    """A finished run: its status (`finished:completed`, `finished:failed`, ...) and what the server app logged."""

    id: str
    status: str
    log: str


class Deployment:
    """One SuperLink with TLS and SuperNode authentication, and the sites that were started.

    environment: added to the environment of every process
    logs:        folder for what the processes print; by default in `folder`
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None, logs: Path | None = None) -> None:
        self.folder = folder
        self.logs = logs or folder / "logs"
        self.port = free_port()
        self.address = f"{HOST}:{self.port}"
        self.authority = folder / "ca.crt"
        self.secret = folder / "superexec.secret"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = {
            **os.environ,
            # The SuperLink calls Flower's other scripts by name.
            "PATH": f"{SCRIPTS}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONUNBUFFERED": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # Flower's one documented knob: a run starts sooner
            **(environment or {}),
        }

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        write_certificates(self.folder)
        self._home("coordinator").joinpath("config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "{self.address}"\n'
            f'root-certificates = "{self.authority}"\n'
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_superlink(self, relay: bool = False) -> None:
        """Start the SuperLink and wait until it listens.

        relay: it runs no code; coordinators, on whatever machine, do that themselves, with the secret in `secret`
        """
        self._start(
            "superlink",
            [
                str(SCRIPTS / "flower-superlink"),
                *("--host", HOST, "--port", str(self.port)),
                *self._server_certificate(),
                "--enable-supernode-auth",
                "--disable-runtime-dependency-installation",
                *(self._relay() if relay else ()),
            ],
            self._home("coordinator"),
        )
        self._await("superlink", lambda: listens(self.port))

    def register(self, site: str) -> None:
        """Make the site's key pair and have the SuperLink accept it."""
        self.flwr("supernode", "register", str(self.make_key(site).with_suffix(".pub")), CONNECTION)

    def make_key(self, site: str) -> Path:
        """The site's private key, in the OpenSSH format that Flower reads; the public one lies beside it."""
        path = self._home(site) / "key"
        if not path.exists():
            key = ec.generate_private_key(ec.SECP256R1())  # P-384 works too; every request is signed with it
            encoding = serialization.Encoding
            path.write_bytes(
                key.private_bytes(encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
            )
            path.chmod(0o600)
            public = key.public_key().public_bytes(encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
            path.with_suffix(".pub").write_bytes(public + b"\n")
        return path

    def start_site(
        self,
        site: str,
        node_config: Mapping[str, Setting] | None = None,
        *,
        client_app: str | None = None,
        stock: bool = False,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the site's process; the coordinator finds it as soon as it is online.

        node_config: what the site's code may read; `name` is added to it
        client_app:  module:attribute to run, instead of fedpact's
        stock:       Flower's own SuperNode, which runs what the run ships, a process per message
        options:     more of the command line; environment: of this process alone
        """
        config = " ".join(_settings({"name": site, **(node_config or {})}))
        if stock:  # it has an API of its own for the processes that it starts: a port, with TLS
            command = [str(SCRIPTS / "flower-supernode"), "--host", HOST, "--port", str(free_port())]
            command += self._server_certificate()
        else:
            command = [sys.executable, "-m", "fedpact.engines.flower.site"]
            command += ["--app", client_app] if client_app else []
        self._start(
            site,
            [
                *command,
                *("--superlink", self.address, "--root-certificates", str(self.authority)),
                *("--auth-supernode-private-key", str(self.make_key(site)), "--node-config", config),
                *options,
            ],
            self._home(site),
            environment,
        )

    def stop_site(self, site: str) -> None:
        """End the site's process in good order: it tells the SuperLink."""
        self._end([self._processes.pop(site)])

    def kill_site(self, site: str) -> None:
        """End the site's process without warning, as a power cut would."""
        process = self._processes.pop(site)
        process.kill()
        process.wait()

    def wait_site(self, site: str, timeout: float = 60.0) -> int:
        """The exit code of a site that ends by itself."""
        code = self._processes[site].wait(timeout)
        del self._processes[site]
        return code

    def output(self, name: str) -> str:
        """What `superlink` or a site has printed so far."""
        return (self.logs / f"{name}.log").read_text(errors="replace")

    def submit(self, app: Path, run_config: Mapping[str, Setting] | None = None) -> str:
        """Start a run of the app folder; its id."""
        printed = self.flwr("run", str(app), CONNECTION, *_run_config(run_config))
        return _run_id(printed)

    def run(self, app: Path, run_config: Mapping[str, Setting] | None = None) -> Run:
        """Run the app folder to its end, printing the server app's log as it comes."""
        command = [str(SCRIPTS / "flwr"), "run", str(app), CONNECTION, "--stream", *_run_config(run_config)]
        lines: list[str] = []
        with subprocess.Popen(
            command,
            env=self._environment | {"FLWR_HOME": str(self._home("coordinator"))},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    print(line, end="", flush=True)
                    lines.append(line)
            finally:
                process.terminate()
        log = "".join(lines)
        run_id = _run_id(log)
        return Run(run_id, self.status(run_id), log)

    def status(self, run_id: str) -> str:
        """The run's status as the SuperLink has it: `running`, `finished:completed`, `finished:failed`, ..."""
        printed = self.flwr("ls", CONNECTION, "--run-id", run_id, "--format", "json")
        return str(json.loads(printed[printed.index("{") :])["runs"][0]["status"])

    def flwr(self, *arguments: str) -> str:
        """What a `flwr` command printed; DeploymentError when it failed."""
        done = subprocess.run(
            [str(SCRIPTS / "flwr"), *arguments],
            env=self._environment | {"FLWR_HOME": str(self._home("coordinator"))},
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            raise DeploymentError(f"flwr {shlex.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def stop(self) -> None:
        """End every process of this deployment, the sites first."""
        self._end(list(reversed(self._processes.values())))
        self._processes.clear()

    def _end(self, processes: list[subprocess.Popen[bytes]]) -> None:
        below = descendants({process.pid for process in processes})
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:  # it does not listen
                process.kill()
                process.wait()
        for pid in below:  # a server app that still ran would wait for the SuperLink forever
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _home(self, name: str) -> Path:
        """One Flower home per party, as on separate machines."""
        home = self.folder / "homes" / name.replace(" ", "-")
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _server_certificate(self) -> list[str]:
        files = {"ca-certfile": "ca.crt", "certfile": "server.pem", "keyfile": "server.key"}
        return [part for option, file in files.items() for part in (f"--ssl-{option}", str(self.folder / file))]

    def _relay(self) -> list[str]:
        """Options of a SuperLink that runs no code; it shares a secret with the coordinators, and with nobody else."""
        if not self.secret.exists():
            self.secret.touch(mode=0o600)
            self.secret.write_text(secrets.token_hex(32))
        return ["--isolation", "process", "--superexec-auth-secret-file", str(self.secret)]

    def _start(self, name: str, command: list[str], home: Path, environment: Mapping[str, str] | None = None) -> None:
        given = {**self._environment, "FLWR_HOME": str(home), **(environment or {})}
        with (self.logs / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, env=given, stdout=log, stderr=subprocess.STDOUT)

    def _await(self, name: str, ready: Callable[[], bool], timeout: float = 60.0) -> None:
        deadline = time.monotonic() + timeout
        while not ready():
            if self._processes[name].poll() is not None or time.monotonic() > deadline:
                raise DeploymentError(f"{name} did not start:\n{self.output(name)}")
            time.sleep(0.1)


def _settings(values: Mapping[str, Setting]) -> list[str]:
    """key=value as Flower reads them: text in quotes, and without quotes in it."""
    for key, value in values.items():
        if isinstance(value, str) and '"' in value:
            raise DeploymentError(f"{key} = {value!r}: Flower takes no text with quotes in it")
    return [
        f'{key}="{value}"' if isinstance(value, str) else f"{key}={json.dumps(value)}" for key, value in values.items()
    ]


def _run_config(values: Mapping[str, Setting] | None) -> list[str]:
    return ["--run-config", " ".join(_settings(values))] if values else []


def _run_id(printed: str) -> str:
    found = re.search(r"Successfully started run (\d+)", printed)
    if found is None:
        raise DeploymentError(f"flwr run did not start a run:\n{printed}")
    return found[1]


def descendants(pids: set[int]) -> set[int]:
    """The processes below these ones."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(pid): int(parent) for pid, parent in map(str.split, listed.splitlines())}
    found: set[int] = set()
    while new := {pid for pid, parent in parents.items() if parent in pids | found} - found:
        found |= new
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def write_certificates(folder: Path) -> None:
    """An authority of our own (ca.crt) and a certificate for this machine (server.pem, server.key)."""
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)

    def certificate(
        subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey, authority: bool
    ) -> bytes:
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))]
        builder = (
            x509.CertificateBuilder()
            .subject_name(_named(subject))
            .issuer_name(_named(issuer))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if authority:
            builder = builder.add_extension(
                x509.KeyUsage(False, False, False, False, False, True, True, False, False), critical=True
            )
        else:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    (folder / "ca.crt").write_bytes(certificate("loopback CA", authority_key, "loopback CA", authority_key, True))
    (folder / "server.pem").write_bytes(certificate("localhost", server_key, "loopback CA", authority_key, False))
    private = serialization.PrivateFormat.PKCS8
    key_file = folder / "server.key"
    key_file.write_bytes(server_key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption()))
    key_file.chmod(0o600)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
