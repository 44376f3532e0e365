"""The process `quorate-operator`: configured by environment variables and options.

It exits with status 0 after a signal to stop, and with status 1 and one line when it cannot run. If
it has lost its lease, it starts again in place.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from kubernetes import client, config
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from quorate.telemetry.logs import JsonFormatter, LogFormat, LogLevel, set_level
from tenacity import before_sleep_log, retry_if_exception, wait_random_exponential
from tenacity.asyncio import AsyncRetrying

from quorate_operator import crd_install
from quorate_operator.backups.loop import BackupLoop
from quorate_operator.control.act import LeaseLostError
from quorate_operator.control.claims import NamespaceClaims
from quorate_operator.control.loop import Operator
from quorate_operator.health import Heartbeat, listener
from quorate_operator.kube.api import Kube, KubeError
from quorate_operator.kube.lease import LeaderLease
from quorate_operator.metrics import OperatorMetrics
from quorate_operator.naming import Object

LOGGER = logging.getLogger("quorate.operator")
LEASE_NAME = "quorate-operator"
CONNECTIONS_MAX = 512
"""How many idle connections to the API server are kept. Each watch has one, eleven in a namespace;
urllib3 closes those beyond this number after their request, and warns each time.
"""


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the options. Most have an environment variable, because variables configure pods."""
    get = os.environ.get
    parser = argparse.ArgumentParser(
        prog="quorate-operator", description="Reconciles Quorum resources."
    )
    parser.add_argument(
        "--namespace",
        default=get("QUORATE_OPERATOR_NAMESPACE", ""),
        type=_names,
        help="watch only these namespaces, separated by commas; default: all namespaces "
        "(QUORATE_OPERATOR_NAMESPACE)",
    )
    parser.add_argument(
        "--lease-namespace",
        default=get("QUORATE_OPERATOR_LEASE_NAMESPACE", ""),
        help="namespace of the lease; default: the first of --namespace, or else the namespace "
        "default (QUORATE_OPERATOR_LEASE_NAMESPACE)",
    )
    parser.add_argument(
        "--identity",
        default=get("QUORATE_OPERATOR_IDENTITY", f"{socket.gethostname()}-{os.getpid()}"),
        help="name of this process as the holder of the lease (QUORATE_OPERATOR_IDENTITY)",
    )
    parser.add_argument(
        "--apply-crd",
        action=argparse.BooleanOptionalAction,
        default=get("QUORATE_OPERATOR_APPLY_CRD", "true") == "true",
        help="apply the operator's own version of the CRD at startup (QUORATE_OPERATOR_APPLY_CRD)",
    )
    parser.add_argument(
        "--allowed-images",
        default=get("QUORATE_OPERATOR_ALLOWED_IMAGES", ""),
        help="allowed image repositories of Quorums, separated by commas; an entry that ends with "
        "/ allows all repositories below it; default: any (QUORATE_OPERATOR_ALLOWED_IMAGES)",
    )
    parser.add_argument(
        "--watch-secrets",
        action=argparse.BooleanOptionalAction,
        default=get("QUORATE_OPERATOR_WATCH_SECRETS", "true") == "true",
        help="watch the Secrets in the namespaces of Quorums, without their content; otherwise "
        "their changes are noticed within 3 minutes (QUORATE_OPERATOR_WATCH_SECRETS)",
    )
    parser.add_argument(
        "--pod-uid",
        default=get("QUORATE_OPERATOR_POD_UID", ""),
        help="UID of this pod, whose name is --identity: the lease is deleted with the pod "
        "(QUORATE_OPERATOR_POD_UID)",
    )
    parser.add_argument(
        "--http-listener",
        type=_address,
        default=get("QUORATE_OPERATOR_HTTP_LISTENER", ""),
        help="HOST:PORT of /healthz, /readyz and /metrics; an empty host means all addresses; "
        "default: none (QUORATE_OPERATOR_HTTP_LISTENER)",
    )
    parser.add_argument(
        "--log-level",
        type=LogLevel,
        choices=list(LogLevel),
        default=get("QUORATE_OPERATOR_LOG_LEVEL", LogLevel.INFO.value),
        help="lowest level that is logged (QUORATE_OPERATOR_LOG_LEVEL)",
    )
    parser.add_argument(
        "--log-format",
        type=LogFormat,
        choices=list(LogFormat),
        default=get("QUORATE_OPERATOR_LOG_FORMAT", LogFormat.TEXT.value),
        help="text lines, or one JSON object per line (QUORATE_OPERATOR_LOG_FORMAT)",
    )
    parser.add_argument(
        "--print-crd", action="store_true", help="print the CRDs as a JSON list and exit"
    )
    return parser.parse_args(arguments)


def _names(text: str) -> tuple[str, ...]:
    """Parse names separated by commas."""
    return tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))


def _address(text: str) -> tuple[str, int] | None:
    """Parse HOST:PORT; "" for none."""
    host, colon, port = text.rpartition(":")
    if not text:
        return None
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: expected HOST:PORT")
    return host.strip("[]"), int(port)


def configure_logging(level: LogLevel, log_format: LogFormat) -> None:
    """Log to stderr. Other libraries log at INFO at most: details may contain Secrets."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else text)
    logging.basicConfig(handlers=[handler], force=True)
    set_level(level)
    logging.getLogger("quorate_operator").setLevel(level.name)


def connect(metrics: OperatorMetrics) -> Kube:
    """Connect to the API of the cluster that this pod runs in, or that KUBECONFIG names."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    else:
        config.load_kube_config()  # type: ignore[no-untyped-call]
    configuration = client.Configuration.get_default_copy()
    configuration.connection_pool_maxsize = CONNECTIONS_MAX
    return Kube(client.ApiClient(configuration), metrics.requested)


def configure_tracing() -> None:
    """Write spans to stderr if OTEL_TRACES_EXPORTER=console; otherwise discard them."""
    if os.environ.get("OTEL_TRACES_EXPORTER") != "console":
        return
    provider = TracerProvider(resource=Resource.create({"service.name": "quorate-operator"}))
    provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
    trace.set_tracer_provider(provider)


async def run_loops(quorums: Operator, backups: BackupLoop) -> None:
    """Run until cancelled. Raises LeaseLostError."""
    task = asyncio.create_task(backups.run())
    try:
        await quorums.run()
    finally:
        task.cancel()


def note(what: str) -> None:
    """Log a change; tests replace this with a function that ends the process."""
    LOGGER.info("mutation: %s", what)


async def apply_crd_when_possible(kube: Kube) -> None:
    """Apply the CRDs. While the API server does not answer, try again. Raises KubeError."""
    retrying = AsyncRetrying(
        retry=retry_if_exception(lambda e: isinstance(e, KubeError) and e.may_pass),
        wait=wait_random_exponential(multiplier=0.5, max=15.0),
        before_sleep=before_sleep_log(LOGGER, logging.WARNING),
        reraise=True,
    )
    await retrying(partial(asyncio.to_thread, crd_install.apply_crds, kube))


def owner_of_lease(options: argparse.Namespace) -> Object | None:
    """The owner reference of this pod; None outside of one."""
    if not options.pod_uid:
        return None
    return {"apiVersion": "v1", "kind": "Pod", "name": options.identity, "uid": options.pod_uid}


async def run(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT, and return the exit status."""
    metrics, heartbeat = OperatorMetrics(), Heartbeat()
    kube = connect(metrics)
    lease = LeaderLease(
        kube,
        options.lease_namespace or next(iter(options.namespace), "default"),
        LEASE_NAME,
        options.identity,
        owner=owner_of_lease(options),
        is_alive=heartbeat.is_alive,
    )
    metrics.watch_lease(lambda: lease.is_held)
    beating = asyncio.create_task(heartbeat.run())
    pages = listener(lease, metrics)
    if options.http_listener is not None:
        await pages.start(*options.http_listener)
    try:
        return await _serve(options, kube, lease, metrics)
    except LeaseLostError as error:
        if not lease.acquired.is_set():
            raise
        LOGGER.warning("%s: starting again", error)
        start_again()
    finally:
        await pages.stop()
        beating.cancel()


def start_again() -> NoReturn:
    """Replace this process with a new one, which waits for the lease.

    Threads may be in the middle of requests, and must not act for this process any more. If the
    process ended instead, the kubelet would wait up to five minutes before it restarts a container
    that has ended several times, and nobody would replace lost disks meanwhile.
    """
    sys.stderr.flush()
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - its own arguments


async def _serve(
    options: argparse.Namespace, kube: Kube, lease: LeaderLease, metrics: OperatorMetrics
) -> int:
    """Reconcile until SIGTERM or SIGINT, and return the exit status."""
    if options.apply_crd:
        await apply_crd_when_possible(kube)
    threading.Thread(target=lease.run, daemon=True).start()
    claims = NamespaceClaims(kube, lease)
    threading.Thread(target=claims.run, daemon=True).start()
    images = _names(options.allowed_images)
    made = Operator(
        kube,
        lease,
        options.namespace,
        claims=claims,
        mutated=note,
        images=images,
        watches_secrets=options.watch_secrets,
        metrics=metrics,
    )
    metrics.watch_quorums(made.reported)
    metrics.watch_claims(claims.states)
    backups = BackupLoop(
        kube, lambda: lease.is_held, claims, options.namespace, mutated=note, images=images
    )
    metrics.watch_backups(backups.reported)
    operator = asyncio.create_task(run_loops(made, backups))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, operator.cancel)
    watched = ", ".join(options.namespace) or "all namespaces"
    LOGGER.info("watching %s as %s", watched, options.identity)
    try:
        await operator
    except asyncio.CancelledError:
        await asyncio.to_thread(claims.release)
        await asyncio.to_thread(lease.release)
        LOGGER.info("stopped")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point `quorate-operator`."""
    options = parse(arguments)
    if options.print_crd:
        import json  # noqa: PLC0415

        found = {"apiVersion": "v1", "kind": "List", "items": crd_install.definitions()}
        print(json.dumps(found, indent=2))
        return 0
    configure_logging(options.log_level, options.log_format)
    configure_tracing()
    try:
        status = asyncio.run(run(options))
    except (KubeError, LeaseLostError, OSError, config.ConfigException) as error:
        print(f"quorate-operator: error: {error}", file=sys.stderr)
        status = 1
    # Threads that wait for the API server must not delay the exit.
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
