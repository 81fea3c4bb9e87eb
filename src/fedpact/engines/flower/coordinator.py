"""A coordinator in this process, wherever it is: the SuperLink only relays, and runs no code.

By default a SuperLink starts the coordinator's half of a run as a process of its own. One that was started with
`--isolation process --superexec-auth-secret-file FILE` starts nothing: who knows the secret takes the task of a run,
and serves it through the same port, over TLS. The secret signs the request for the task and does not travel; what
follows is authenticated by the token of the task.

Which run's task is taken does not matter: a run of Flower is a channel here. The job, the keys and the code are those
of this process, whatever a run ships.

Written against flwr 1.41, and internal to Flower as what `site` uses: all of it is imported here, and where it is not
what is expected, the coordinator runs at the SuperLink, as before.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from fedpact.engines.flower.site import SHORTEST
from fedpact.errors import OptionError, OwnerLost

try:
    from flwr.common.constant import SubStatus
    from flwr.common.serde import run_from_proto
    from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest, PushTaskOutputRequest
    from flwr.supercore.constant import TaskType
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid import HttpGrid

    _connects = list(inspect.signature(HttpGrid).parameters)
    KNOWN = _connects == ["runtime_api_address", "insecure", "root_certificates", "token"]
except ImportError:
    KNOWN = False

log = logging.getLogger("fedpact.flower")

#: What the secret signs.
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
#: Seconds to wait for the task of a run that was submitted.
PATIENCE = 60.0


@contextmanager
def take_run(address: str, secret: Path, certificates: Path | None, patience: float = PATIENCE) -> Iterator[Grid]:
    """The grid of a run that waits for its coordinator; the run counts as failed when the block raises.

    secret:       file that the SuperLink shares with coordinators
    certificates: authority of the SuperLink; None: without TLS, for trials on one machine
    """
    if not KNOWN:
        raise OptionError(
            "this flwr is not one that fedpact knows: leave superexec_secret out, and run the job where the SuperLink "
            "is, which is then started without --isolation process",
            code="FP-OPTION-662",
        )
    authority = None if certificates is None else certificates.read_bytes()
    token = _acquire(address, _read_secret(secret), authority, patience)
    grid = HttpGrid(address, authority is None, authority, token=token)
    superlink = grid._runtime_client
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(superlink))
    heartbeat.start()
    ended = SubStatus.FAILED
    try:
        task = superlink.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id = task.task_id
        TaskIdentity.run_id = task.run.run_id
        TaskIdentity.node_id = task.context.node_id
        grid.set_run(run_from_proto(task.run))
        yield grid
        ended = SubStatus.COMPLETED
    finally:
        grid._retry_invoker.max_tries = 1  # the SuperLink may be what is gone
        try:
            # Why it failed is nobody's business there: the text of an error may hold names of owners and columns.
            superlink.PushTaskOutput(PushTaskOutputRequest(sub_status=ended, details=""))
        except Exception as error:
            log.warning("the SuperLink does not know how the run ended: %s", error)
        heartbeat.stop()
        grid.close()


def _acquire(address: str, secret: bytes, authority: bytes | None, patience: float) -> str:
    """The token of the oldest run that waits."""
    interceptors: list[Any] = [
        RuntimeVersionHttpInterceptor(component_name="SuperExec"),
        SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods={ACQUIRE}),
    ]
    client = RuntimeHttpClient.from_server_address(address, authority is None, authority, interceptors)
    wanted = AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])
    until = time.monotonic() + patience
    with closing(client):
        while time.monotonic() < until:
            try:
                found = client.AcquireTask(wanted)
            except Exception as error:
                raise OptionError(
                    f"the SuperLink at {address} did not hand over a run ({error}); check that superexec_secret is the "
                    "file that it was started with, and root_certificates",
                    code="FP-OPTION-663",
                ) from error
            if found.token:
                return str(found.token)
            time.sleep(SHORTEST)
    raise OwnerLost(
        f"no run waits at the SuperLink at {address}: it starts coordinators itself; start it with --isolation process "
        "--superexec-auth-secret-file FILE",
        code="FP-LOST-660",
    )


def _read_secret(path: Path) -> bytes:
    secret = path.read_bytes()
    if len(secret) < 16:
        raise OptionError(
            f"{path}: a secret of {len(secret)} bytes is too short; make one with: openssl rand -hex 32",
            code="FP-OPTION-664",
        )
    if path.stat().st_mode & 0o077:
        raise OptionError(f"{path} can be read by others; run: chmod 600 {path}", code="FP-OPTION-665")
    return secret
