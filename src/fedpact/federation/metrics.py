"""How a site is doing, for whoever runs it: numbers for Prometheus on the loopback interface, off by default.

They tell how much was asked, answered and refused, and nothing of what it was about.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version

from fedpact.errors import OptionError
from fedpact.federation.protocol import PROTOCOL

#: Never another: no one outside of this machine is to learn when a hospital computes.
HOST = "127.0.0.1"
#: Seconds without a word from the SuperLink after which an idle site counts as unhealthy.
SILENCE = 90.0
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The counts of this process; `METRICS` is the one that all sites in it use.

    busy: an order is being worked on
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.orders = 0
        self.refused: Counter[str] = Counter()
        self.bytes_out = 0
        self.seconds = 0.0
        self.last_order = 0.0
        self.runs = 0
        self.busy = False
        self._heard = time.monotonic()

    def count_order(self, bytes_out: int, seconds: float) -> None:
        """Count an order that was answered, or refused."""
        with self._lock:
            self.orders += 1
            self.bytes_out += bytes_out
            self.seconds += seconds
            self.last_order = time.time()

    def count_refusal(self, code: str) -> None:
        with self._lock:
            self.refused[code] += 1

    def count_run(self) -> None:
        with self._lock:
            self.runs += 1

    def hear(self) -> None:
        """Note that the SuperLink has just answered."""
        self._heard = time.monotonic()

    @property
    def healthy(self) -> bool:
        """Whether the site works on an order, or heard from the SuperLink lately."""
        return self.busy or time.monotonic() - self._heard < SILENCE

    def to_text(self) -> str:
        """All numbers in Prometheus' text format."""
        with self._lock:
            refused = sorted(self.refused.items())
            lines = [
                *_describe("up", "gauge", "whether the SuperLink is in reach"),
                f"fedpact_site_up {int(self.healthy)}",
                *_describe("info", "gauge", "what runs here"),
                f'fedpact_site_info{{version="{version("fedpact")}",protocol="{PROTOCOL}"}} 1',
                *_describe("orders_total", "counter", "orders that were answered or refused"),
                f"fedpact_site_orders_total {self.orders}",
                *_describe("refused_total", "counter", "orders that were refused or failed, by code"),
                *(f'fedpact_site_refused_total{{code="{code}"}} {number}' for code, number in refused),
                *_describe("bytes_out_total", "counter", "bytes of replies"),
                f"fedpact_site_bytes_out_total {self.bytes_out}",
                *_describe("order_seconds_total", "counter", "seconds of work on orders"),
                f"fedpact_site_order_seconds_total {self.seconds:.6f}",
                *_describe("last_order_timestamp_seconds", "gauge", "when the last order was answered; 0: never"),
                f"fedpact_site_last_order_timestamp_seconds {self.last_order:.3f}",
                *_describe("runs_total", "counter", "runs that were begun or gone on with"),
                f"fedpact_site_runs_total {self.runs}",
            ]
        return "\n".join(lines) + "\n"


METRICS = Metrics()


def _describe(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP fedpact_site_{name} {text}", f"# TYPE fedpact_site_{name} {kind}"


class _Handler(BaseHTTPRequestHandler):
    """/metrics, and /healthz: 200 when the site is healthy, else 503."""

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._send(200, METRICS.to_text(), MEDIA_TYPE)
        elif self.path == "/healthz":
            healthy = METRICS.healthy
            self._send(200 if healthy else 503, "ok\n" if healthy else "no word from the SuperLink\n", "text/plain")
        else:
            self._send(404, "there are /metrics and /healthz\n", "text/plain")

    def _send(self, status: int, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "fedpact"

    def log_message(self, format: str, *args: object) -> None:
        """A scrape every few seconds is not worth a line."""


def serve_metrics(port: int) -> ThreadingHTTPServer:
    """Serve them in a thread until the process ends; port 0: a free one, see `server_port` of what is returned."""
    try:
        server = ThreadingHTTPServer((HOST, port), _Handler)
    except (OSError, OverflowError) as error:
        raise OptionError(
            f"metrics cannot be served at {HOST}:{port} ({error}); state another port", code="FP-OPTION-670"
        ) from error
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
