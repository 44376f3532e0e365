"""`quorate metadata-shell`: explores the state of a metadata log, like Kafka's metadata shell.

It reads a checkpoint (--snapshot) or a directory (--log-dir) once, without locking or changing it,
and shows the image as a tree (`metadata_tree`). With a command, it prints the command's result and
exits. Without one, it reads commands until `exit` or the end of input. With --json, the commands
that read paths all print the same: what is at each path, with everything below it.

Source: Kafka's org.apache.kafka.shell.MetadataShell.
"""

from __future__ import annotations

import difflib
import fnmatch
import posixpath
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.cli.log.metadata_tree import Directory, build_tree, draw
from quorate.cli.options import AsJson
from quorate.cli.output import (
    CommandError,
    UsageError,
    print_error,
    print_json,
    printable,
    progress,
)

if TYPE_CHECKING:
    from quorate.metadata.image.metadata_image import MetadataImage

COMMANDS = {
    "ls": "ls [PATH…]      list the contents of directories",
    "cat": "cat PATH…       print the contents of files",
    "tree": "tree [PATH…]    print directories recursively",
    "find": "find [PATH…]    print all paths recursively",
    "cd": "cd [PATH]       change the working directory",
    "pwd": "pwd             print the working directory",
    "help": "help            print this text",
    "exit": "exit            leave the shell",
}
JSON_COMMANDS = ("ls", "cat", "tree", "find")


def metadata_shell(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND [PATH…]]",
            help="ls, cat, tree or find; default: an interactive prompt.",
        ),
    ] = None,
    *,
    snapshot: Annotated[
        Path | None, typer.Option("--snapshot", "-s", metavar="FILE", help="A checkpoint to read.")
    ] = None,
    log_dir: Annotated[
        Path | None,
        typer.Option(
            "--log-dir",
            metavar="DIR",
            help="A metadata.log.dir: reads its newest checkpoint and the log after it.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explore the cluster's metadata, from a log or a checkpoint, with ls, cat, tree and find.

    \b
    quorate metadata-shell --log-dir /var/lib/quorate tree /image/topics/byName
    quorate metadata-shell --snapshot 00000000000000000500-0000000007.checkpoint
    """
    if (snapshot is None) == (log_dir is None):
        raise UsageError("metadata-shell takes either --snapshot FILE or --log-dir DIR")
    word, *paths = command or ("cat",)
    if as_json and word not in JSON_COMMANDS:
        raise UsageError(f"--json works with ls, cat, tree and find, not with {word!r}")
    image = load_image(snapshot or log_dir or Path())
    place = {"offset": image.offset, "epoch": image.epoch, "timestampMs": image.timestamp_ms}
    root = build_tree(image.records(), place)
    if as_json:
        print_json({path: _existing(root, path) for path in paths or ("/",)})
        return
    shell = Shell(root, sys.stdout.write)
    if command:
        shell.run(command)
    else:
        _prompt(shell)


def load_image(path: Path) -> MetadataImage:
    """Load the image from a checkpoint or a directory. Raises CommandError."""
    from quorate.metadata.image.metadata_image import ReplayError
    from quorate.runtime.metadata_files import read_directory, read_snapshot

    try:
        with progress(f"reading {path}"):
            if path.is_dir():
                return read_directory(path)
            return read_snapshot(path)
    except ReplayError as error:
        raise CommandError(f"{path}: {error}") from error


def _prompt(shell: Shell) -> None:
    is_watched = sys.stdin.isatty()
    while True:
        if is_watched:
            print(">> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        try:
            words = _words(line)
            if words and words[0] in ("exit", "quit"):
                return
            if words:
                shell.run(words)
        except (CommandError, UsageError) as error:
            if not is_watched:
                raise
            print_error(error)


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{line.strip()}: {error}") from error


def _existing(root: Directory, path: str) -> Directory | str:
    found = root.find(posixpath.normpath(posixpath.join("/", path)))
    if found is None:
        raise CommandError(f"{path}: no such file or directory")
    return found


class Shell:
    """Runs commands on a tree and passes their output to `write`."""

    def __init__(self, root: Directory, write: Callable[[str], object]) -> None:
        self._root = root
        self._write = write
        self._here = "/"
        self._commands: dict[str, Callable[[Sequence[str]], None]] = {
            "ls": self._ls,
            "cat": self._cat,
            "tree": self._tree,
            "find": self._find,
            "cd": self._cd,
            "pwd": lambda _paths: self._line(self._here),
            "help": lambda _paths: self._lines(COMMANDS.values()),
        }

    def run(self, words: Sequence[str]) -> None:
        """Run one command. Raises CommandError (missing path), UsageError (unknown command)."""
        run = self._commands.get(words[0])
        if run is None:
            near = difflib.get_close_matches(words[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}"
            raise UsageError(f"no such command {words[0]!r}: {hint}")
        run(words[1:])

    def _line(self, text: str) -> None:
        self._write(printable(text) + "\n")

    def _lines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._line(text)

    def _absolute(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._here, path))

    def _expand(self, paths: Sequence[str]) -> list[tuple[str, Directory | str]]:
        """Return (path, node) for all paths, with * and ? as wildcards. Raises CommandError."""
        found: list[tuple[str, Directory | str]] = []
        for path in paths or (self._here,):
            matched: list[tuple[str, Directory | str]] = []
            matched += [("/", self._root)] if self._absolute(path) == "/" else []
            matched += self._glob(self._absolute(path).strip("/").split("/"), "", self._root)
            if not matched:
                raise CommandError(f"{path}: no such file or directory")
            found += matched
        return found

    def _glob(
        self, parts: Sequence[str], prefix: str, node: Directory | str
    ) -> Iterator[tuple[str, Directory | str]]:
        if not parts or parts == [""]:
            return
        if not isinstance(node, Directory):
            return
        for name in node.sorted_names():
            if name == parts[0] or fnmatch.fnmatchcase(name, parts[0]):
                path = f"{prefix}/{name}"
                if len(parts) == 1:
                    yield path, node[name]
                else:
                    yield from self._glob(parts[1:], path, node[name])

    def _ls(self, paths: Sequence[str]) -> None:
        found = self._expand(paths)
        for path, node in found:
            if not isinstance(node, Directory):
                self._line(path)
                continue
            if len(found) > 1:
                self._line(f"{path}:")
            self._line("  ".join(node.sorted_names()))

    def _cat(self, paths: Sequence[str]) -> None:
        if not paths:
            raise UsageError("cat requires a path")
        for path, node in self._expand(paths):
            if isinstance(node, Directory):
                raise CommandError(f"{path} is a directory")
            self._lines(node.splitlines() or [""])

    def _tree(self, paths: Sequence[str]) -> None:
        for path, node in self._expand(paths):
            if isinstance(node, Directory):
                self._lines(draw(node))
            else:
                self._lines((path, *node.splitlines()))

    def _find(self, paths: Sequence[str]) -> None:
        for path, node in self._expand(paths):
            self._lines(_walk(path, node))

    def _cd(self, paths: Sequence[str]) -> None:
        ((path, node), *others) = self._expand(paths or ("/",))
        if others or not isinstance(node, Directory):
            raise CommandError(f"{' '.join(paths)} is not a directory")
        self._here = path


def _walk(path: str, node: Directory | str) -> Iterator[str]:
    yield path
    if isinstance(node, Directory):
        for name in node.sorted_names():
            yield from _walk(posixpath.join(path, name), node[name])
