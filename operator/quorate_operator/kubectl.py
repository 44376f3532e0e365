"""The kubectl plugin: `kubectl quorate …`, the program `kubectl-quorate`.

It changes nothing itself: it annotates and patches Quorums with the user's own rights, and the
operator acts. Errors are one line. The exit status is 0, or 1 after an error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def parser() -> argparse.ArgumentParser:
    """The parser of the options, which are accepted before and after the command."""
    made = argparse.ArgumentParser(
        prog="kubectl quorate", description="Shows and operates Quorums. Uses your kubeconfig."
    )
    _add_connection(made, None)
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(command: str, text: str, *arguments: tuple[str, str]) -> argparse.ArgumentParser:
        each = commands.add_parser(command, help=text, description=text)
        _add_connection(each, argparse.SUPPRESS)
        for name, about in arguments:
            choices = ("on", "off") if name == "state" else None
            each.add_argument(name, help=about, choices=choices)
        return each

    name = ("name", "the Quorum")
    member = ("member", "a pod such as meta-2, or a node id")
    status = add("status", "Show voters, volumes, conditions and the last Events.", name)
    status.add_argument("--json", action="store_true", help="print a JSON object")
    add("fence", "Stop a member's controller; its pod keeps the volume.", name, member)
    add("unfence", "Return a member that is fenced.", name, member)
    add("restart", "Restart the pods one at a time, the leader last.", name)
    add("approve", "Approve the rollout that waits for an approval.", name)
    add(
        "hibernate",
        "Delete all pods and keep the volumes, or return.",
        ("state", "on or off"),
        name,
    )
    return made


def _add_connection(to: argparse.ArgumentParser, default: str | None) -> None:
    to.add_argument("-n", "--namespace", default=default, help="default: that of the context")
    to.add_argument("--context", default=default, help="the context of the kubeconfig")
    to.add_argument("--kubeconfig", default=default, help="default: KUBECONFIG, ~/.kube/config")


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point `kubectl-quorate`."""
    options = parser().parse_args(arguments)
    try:
        from quorate_operator.plugin import commands  # noqa: PLC0415
    except ImportError as error:
        text = f"{error.name or error} is not installed: pip install 'quorate[operator]'"
        return _failed(text)
    try:
        print(commands.run(options))
    except commands.PluginError as error:
        return _failed(str(error))
    except BrokenPipeError:
        sys.stderr.close()  # the reader, such as `head`, has ended
    return 0


def _failed(text: str) -> int:
    print(f"error: {' '.join(text.split())}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
