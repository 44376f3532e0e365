"""The process `quorate-operator`: configured by environment variables and options.

It exits with status 0 after a signal to stop, and with status 1 and one line when it cannot run or
has lost its lease. Its supervisor is expected to restart it.
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

from kubernetes import client, config
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from quorate_operator import crd
from quorate_operator.act import LeaseLostError
from quorate_operator.kube import Kube, KubeError
from quorate_operator.lease import LeaderLease
from quorate_operator.loop import Operator

LOGGER = logging.getLogger("quorate.operator")
LEASE_NAME = "quorate-operator"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the options. Most have an environment variable, because variables configure pods."""
    get = os.environ.get
    parser = argparse.ArgumentParser(
        prog="quorate-operator", description="Reconciles Quorum resources."
    )
    parser.add_argument(
        "--namespace",
        default=get("QUORATE_OPERATOR_NAMESPACE", ""),
        help="watch only this namespace; default: all namespaces (QUORATE_OPERATOR_NAMESPACE)",
    )
    parser.add_argument(
        "--lease-namespace",
        default=get("QUORATE_OPERATOR_LEASE_NAMESPACE", ""),
        help="namespace of the lease; default: that of --namespace, or else the namespace default "
        "(QUORATE_OPERATOR_LEASE_NAMESPACE)",
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
    parser.add_argument("--print-crd", action="store_true", help="print the CRD as JSON and exit")
    return parser.parse_args(arguments)


def connect() -> Kube:
    """Connect to the API of the cluster that this pod runs in, or that KUBECONFIG names."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    else:
        config.load_kube_config()  # type: ignore[no-untyped-call]
    return Kube(client.ApiClient())


def configure_tracing() -> None:
    """Write spans to stderr if OTEL_TRACES_EXPORTER=console; otherwise discard them."""
    if os.environ.get("OTEL_TRACES_EXPORTER") != "console":
        return
    provider = TracerProvider(resource=Resource.create({"service.name": "quorate-operator"}))
    provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
    trace.set_tracer_provider(provider)


def apply_crd(kube: Kube) -> None:
    """Apply the CRD, because Helm installs `crds/` once and never upgrades it.

    Without the permission (403), the CRD stays as it is.
    """
    try:
        kube.apply("", crd.definition(), "quorate-operator")
    except KubeError as error:
        if error.status != 403:
            raise
        LOGGER.warning(
            "no permission to apply the CRD, the installed version stays in use: %s", error
        )


def note(what: str) -> None:
    """Log a change; tests replace this with a function that ends the process."""
    LOGGER.info("mutation: %s", what)


async def run(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT, and return the exit status."""
    kube = connect()
    if options.apply_crd:
        await asyncio.to_thread(apply_crd, kube)
    lease_namespace = options.lease_namespace or options.namespace or "default"
    lease = LeaderLease(kube, lease_namespace, LEASE_NAME, options.identity)
    threading.Thread(target=lease.run, daemon=True).start()
    images = tuple(each.strip() for each in options.allowed_images.split(",") if each.strip())
    made = Operator(kube, lease, options.namespace, mutated=note, images=images)
    operator = asyncio.create_task(made.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, operator.cancel)
    LOGGER.info("watching %s as %s", options.namespace or "all namespaces", options.identity)
    try:
        await operator
    except asyncio.CancelledError:
        await asyncio.to_thread(lease.release)
        LOGGER.info("stopped")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point `quorate-operator`."""
    options = parse(arguments)
    if options.print_crd:
        import json  # noqa: PLC0415

        print(json.dumps(crd.definition(), indent=2))
        return 0
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    configure_tracing()
    try:
        status = asyncio.run(run(options))
    except (KubeError, LeaseLostError, config.ConfigException) as error:
        print(f"quorate-operator: error: {error}", file=sys.stderr)
        status = 1
    # Threads that wait for the API server must not delay the exit.
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
