"""A site of fedpact's app that stops before it answers a step, until it is killed: for tests of what survives that.

The folder of its site.toml has a file `stop before`, with the end of the step's name; it gets a file `reached`. A site
without one answers everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedpact.engines.flower import app
from fedpact.engines.flower.engine import client_app as make_client_app
from fedpact.federation.identity import split_signed
from fedpact.federation.remote import read_message


def make_handler(node_config: Mapping[str, Any]) -> Callable[[bytes], bytes]:
    handle = app.make_handler(node_config)
    policy = Path(str(node_config["policy"]))
    stop = policy.with_suffix(".stop")

    def answer(data: bytes) -> bytes:
        if stop.exists() and read_message(split_signed(data)[1])["step"].endswith(stop.read_text()):
            stop.rename(policy.with_suffix(".reached"))
            while True:
                time.sleep(1)
        return handle(data)

    return answer


client_app = make_client_app(make_handler, app.policy_digest)
