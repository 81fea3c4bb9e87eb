"""A site of a Flower federation as one lasting process: `python -m fedpact.engines.flower.site --help`.

Flower's own `flower-supernode` looks for messages every 3 s and starts a Python process for each. This process speaks
to the SuperLink itself: it looks more often while there is work, keeps what it loaded in memory, opens no port, and
runs only the client app that is installed here, whatever a run ships. The SuperLink sees an ordinary SuperNode.

Written against flwr 1.41; the functions used are the same in 1.40 and 1.42. They are internal to Flower, so all of them
are imported in this file and nowhere else, and where they are not what is expected, `flower-supernode` takes over.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import io
import json
import logging
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fedpact.engines.flower.logs import FORMATS, Format, speak
from fedpact.errors import CODES
from fedpact.federation.failure import UNEXPECTED
from fedpact.federation.metrics import METRICS, serve_metrics

try:
    from flwr.common.config import parse_config_args
    from flwr.common.constant import ErrorCode
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        iterate_object_tree,
        no_object_id_recompute,
    )
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects, push_objects
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.run import RunNotRunningException
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.fleet_http_connection import http_request_response
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    _connects = list(inspect.signature(http_request_response).parameters)
    _pulls = inspect.signature(pull_objects).parameters
    KNOWN = (
        _connects[:4] == ["server_address", "insecure", "root_certificates", "authentication_keys"]
        and "initial_backoff" in _pulls
    )
except ImportError:
    KNOWN = False

APP = "fedpact.engines.flower.app:client_app"
#: Seconds between two looks, at least: a look costs the SuperLink 5 ms.
SHORTEST = 0.1
#: Seconds between two looks, at most: what a round on an idle federation may lose.
LONGEST = 1.0
#: Seconds until a part of a message that is still under way is asked for again; Flower waits 1 s.
PART_UNDER_WAY = 0.03

log = logging.getLogger("fedpact.site")


def pause(waited: float) -> float:
    """Seconds to the next look: a tenth of the time waited so far, within SHORTEST and LONGEST."""
    return min(max(waited / 10, SHORTEST), LONGEST)


def pull_sooner() -> None:
    """Have this process ask again soon for parts under way, also inside Flower's grid, which offers no such option."""
    if KNOWN and pull_objects.__kwdefaults__:
        pull_objects.__kwdefaults__["initial_backoff"] = PART_UNDER_WAY


class Connection(NamedTuple):
    """What Flower's connection to a SuperLink offers, in its order."""

    node_id: int
    receive: Callable[[], tuple[Message, Any] | None]
    send: Callable[[Message, Any, float], tuple[set[str], str]]
    get_run: Callable[..., Any]
    get_fab: Callable[..., Any]
    pull_object: Callable[[int, str], bytes]
    push_object: Callable[[int, str, str, bytes], None]
    confirm: Callable[[int, str], None]


def serve(app: ClientApp, node_config: dict[str, Any], superlink: Connection) -> None:
    """Answer messages until the process is told to end; a message that fails is logged, and the next one served."""
    log.info("%s: connected as node %s", node_config["name"], superlink.node_id)
    last = time.monotonic()
    while True:
        try:
            received = superlink.receive()
            METRICS.hear()
            if received is None:
                time.sleep(pause(time.monotonic() - last))
                continue
            METRICS.busy = True
            _answer(app, node_config, superlink, *received)
        except RunNotRunningException:
            log.info("the run ended before its message was answered")
        except Exception:
            # Left to Flower's connection, the exception would end this process without a word.
            log.exception("a message was lost")
            time.sleep(LONGEST)
        finally:
            METRICS.busy = False
        last = time.monotonic()


def _answer(app: ClientApp, node_config: dict[str, Any], superlink: Connection, envelope: Message, tree: Any) -> None:
    """Fetch the message's parts, run the app, and send the reply's parts: what a SuperNode does in three processes."""
    run = envelope.metadata.run_id
    begun = time.monotonic()
    wanted = [part.object_id for part in iterate_object_tree(tree)]
    # The coordinator announces a message before it sends the parts.
    parts = pull_objects(wanted, partial(superlink.pull_object, run), initial_backoff=PART_UNDER_WAY)
    superlink.confirm(run, tree.object_id)
    message = inflate_object_from_contents(tree.object_id, parts)
    assert isinstance(message, Message)
    message.metadata.__dict__["_message_id"] = tree.object_id  # not among the parts: it is the hash of them
    reply = _reply(app, message, Context(run, superlink.node_id, node_config, RecordDict(), {}))
    seconds = time.monotonic() - begun
    with no_object_id_recompute():
        reply.metadata.__dict__["_message_id"] = reply.object_id
        missing, session = superlink.send(reply, get_object_tree(reply), seconds)
        push = partial(superlink.push_object, run, session)
        push_objects(get_all_nested_objects(reply), push, object_ids_to_push=missing)
    log.info("%s: %s after %.2f s", message.metadata.message_type, "failed" if reply.has_error() else "done", seconds)


def _reply(app: ClientApp, message: Message, context: Context) -> Message:
    try:
        return app(message, context)
    except Exception:  # its text may hold data, and stays in the log
        log.exception("%s failed", message.metadata.message_type)
        reason = f"{UNEXPECTED}: {CODES[UNEXPECTED]}"
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def load(reference: str) -> ClientApp:
    """The client app that `module:attribute` names."""
    module, _, attribute = reference.partition(":")
    app = getattr(importlib.import_module(module), attribute, None)
    if not isinstance(app, ClientApp):
        raise SystemExit(f"--app {reference}: this is not a flwr ClientApp; give module:attribute")
    return app


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fedpact.engines.flower.site",
        description="Serve one site of a Flower federation. The options are those of flower-supernode, and a few more.",
    )
    parser.add_argument("--superlink", required=True, metavar="HOST:PORT", help="the SuperLink's address")
    parser.add_argument("--root-certificates", metavar="FILE", help="certificate authority of the SuperLink (PEM)")
    parser.add_argument("--insecure", action="store_true", help="without TLS; only for trials on one machine")
    parser.add_argument(
        "--auth-supernode-private-key", metavar="FILE", help="this site's registered key: EC, in OpenSSH format"
    )
    parser.add_argument(
        "--node-config",
        required=True,
        metavar="KEYS",
        help='what this site\'s code may read: \'name="..." state-path="..." key=value\'; with a state-path, a site '
        "that was killed is let in again at once, otherwise after a minute",
    )
    parser.add_argument("--app", default=APP, metavar="MODULE:NAME", help=f"the client app to run (default {APP})")
    metrics = "serve numbers for Prometheus at http://127.0.0.1:PORT/metrics, and /healthz (default: off)"
    parser.add_argument("--metrics-port", type=int, metavar="PORT", help=metrics)
    parser.add_argument("--log-format", choices=FORMATS, default="text", help="lines of text, or JSON")
    parser.add_argument("--log-file", metavar="FILE", help="write the log there, rotated at 10 MB, instead of stderr")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Connect and serve; the exit code."""
    given = vars(_options().parse_args(arguments))
    stated = given.pop("node_config")
    if not KNOWN:
        speak(given["log_format"], given["log_file"])
        names = ("superlink", "root_certificates", "auth_supernode_private_key", "insecure")
        return _stock(stated, *(given[name] for name in names))
    return serve_site(parse_config_args([stated]), **given)


def serve_site(
    node_config: Mapping[str, Any],
    *,
    superlink: str,
    root_certificates: str | Path | None = None,
    auth_supernode_private_key: str | Path | None = None,
    insecure: bool = False,
    app: str = APP,
    metrics_port: int | None = None,
    log_format: Format = "text",
    log_file: str | Path | None = None,
) -> int:
    """Connect a site to its SuperLink and serve it until the process is told to end; the exit code.

    node_config: what the site's code may read; `name` must be there
    The others are those of the command line, `python -m fedpact.engines.flower.site --help`.
    """
    speak(log_format, log_file)
    if not KNOWN:
        stated = " ".join(f"{key}={json.dumps(value)}" for key, value in node_config.items())
        return _stock(stated, superlink, root_certificates, auth_supernode_private_key, insecure)
    if not node_config.get("name"):
        raise SystemExit('--node-config: this site has no name; add name="...", as the coordinator knows it')
    client = load(app)
    keys = _keys(auth_supernode_private_key) if auth_supernode_private_key else None
    certificates = str(Path(root_certificates).expanduser()) if root_certificates else None
    if metrics_port is not None:
        log.info("metrics at http://127.0.0.1:%d/metrics", serve_metrics(metrics_port).server_port)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # leaving the connection tells the SuperLink
    try:
        with _node_file(node_config.get("state-path")) as node_file:
            if keys and (earlier := node_file.read()).isdigit():
                _sign_off(int(earlier), superlink, insecure, certificates, keys)
            # With a key that is not registered, Flower ends the process here and says why.
            with http_request_response(superlink, insecure, certificates, keys) as connection:
                connected = Connection(*connection)
                node_file.truncate(0)
                node_file.write(str(connected.node_id))
                node_file.flush()
                serve(client, dict(node_config), connected)
    except KeyboardInterrupt:
        log.info("ended by a signal, or by the SuperLink, which no longer accepts this site's key")
    return 1


@contextmanager
def _node_file(folder: str | None) -> Iterator[TextIO]:
    """Where the node id is kept between processes, locked: only one process at a time serves a site."""
    if not folder:
        yield io.StringIO()
        return
    path = Path(folder).expanduser() / "flower-node"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        with suppress(ImportError):  # no such lock on Windows
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SystemExit(f"state-path {folder}: another process serves this site") from None
        file.seek(0)
        yield file


def _sign_off(
    node_id: int,
    address: str,
    insecure: bool,
    certificates: str | None,
    keys: tuple[EllipticCurvePrivateKey, EllipticCurvePublicKey],
) -> None:
    """End the session of a process that was killed: for a minute the SuperLink takes it for alive, and refuses us."""
    interceptors: list[Any] = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(*keys),
    ]
    try:
        with FleetHttpClient.from_server_address(address, insecure, certificates, interceptors) as client:
            client.DeactivateNode(DeactivateNodeRequest(node_id=node_id))
    except Exception as error:  # there was no such session, or there is no SuperLink yet
        log.debug("no earlier session to end: %s", error)


def _keys(file: str | Path) -> tuple[EllipticCurvePrivateKey, EllipticCurvePublicKey]:
    try:
        key = load_ssh_private_key(Path(file).expanduser().read_bytes(), None)
    except (OSError, ValueError) as error:
        raise SystemExit(f"--auth-supernode-private-key {file}: {error}") from error
    if not isinstance(key, EllipticCurvePrivateKey):
        raise SystemExit(f"--auth-supernode-private-key {file}: not an elliptic-curve key (ssh-keygen -t ecdsa)")
    return key, key.public_key()


def _stock(
    node_config: str,
    superlink: str,
    root_certificates: str | Path | None,
    private_key: str | Path | None,
    insecure: bool,
) -> int:
    """Become Flower's own SuperNode, on a free port of the loopback interface for the processes that it starts."""
    log.warning(
        "this flwr is not the one fedpact knows: flower-supernode takes over. A round takes seconds longer, and the "
        "client app is the one that the run ships, not the one installed here"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["flower-supernode", "--host", "127.0.0.1", "--port", str(port), "--superlink", superlink]
    command += ["--node-config", node_config]
    if root_certificates is not None:
        command += ["--root-certificates", str(root_certificates)]
    if private_key is not None:
        command += ["--auth-supernode-private-key", str(private_key)]
    if insecure:
        command.append("--insecure")
    beside = Path(sys.executable).parent
    # The SuperNode calls Flower's other scripts by name.
    os.environ["PATH"] = f"{beside}{os.pathsep}{os.environ.get('PATH', '')}"
    found = shutil.which(command[0])
    if found is None:
        raise SystemExit("flower-supernode is not installed beside this Python")
    os.execv(found, command)


if __name__ == "__main__":
    sys.exit(main())
