"""What `import quorate` offers: typed names with docstrings, whose examples run."""

from __future__ import annotations

import ast
import asyncio
import inspect
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import quorate
from quorate.log.meta_properties import random_uuid

from tests.integration.embedded_support import CLUSTER, KeyValues, settings
from tests.processes import HOST, free_ports

DOCUMENTED = {
    **{
        name: getattr(quorate, name)
        for name in quorate.__all__
        if name not in ("__version__", "recipes", "sync")
    },
    **{
        f"{module.__name__.removeprefix('quorate.')}.{name}": getattr(module, name)
        for module in (quorate.sync, quorate.recipes)
        for name in module.__all__
    },
}


def example(documented: object) -> str:
    _, found, code = inspect.cleandoc(documented.__doc__ or "").partition("Example:\n")
    assert found, f"{documented} has no example"
    return textwrap.dedent(code)


async def run(code: str, names: dict[str, Any]) -> None:
    """Run an example: with await as a coroutine, else in a thread, as a program without asyncio."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    compiled = compile(code, "example", "exec", flags)
    if compiled.co_flags & inspect.CO_COROUTINE:
        async with asyncio.timeout(20):
            await eval(compiled, names)
    else:
        await asyncio.to_thread(exec, compiled, names)


async def test_the_examples_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ports = free_ports(2)
    running = settings(tmp_path / "running", 1, ports[:1])
    quorate.format_storage(running, CLUSTER, standalone=True)
    address = f"{HOST}:{ports[0]}"
    printed: dict[str, str] = {}
    examples = {name: example(found) for name, found in DOCUMENTED.items()}
    names: dict[str, Any] = {"quorate": quorate, "Path": Path}
    await run(examples.pop("StateMachine"), names)
    assert issubclass(names["KeyValues"], quorate.StateMachine)
    async with quorate.Node(running, names["KeyValues"]()) as node:
        await node.read_index()
        await node.client.finalize_application_version()
        for name, code in examples.items():
            # Each starts a node of its own, if it starts one.
            own = settings(tmp_path / name, 1, ports[1:])
            mentioned = {
                "controller-1:9093": address,
                "127.0.0.1:9093": f"{HOST}:{ports[1]}",
                "/var/lib/program": str(tmp_path / f"formatted-{name}"),
                "client.pem": str(tmp_path / "client.pem"),
            }
            program = code
            for text, instead in mentioned.items():
                program = program.replace(text, instead)
            if name != "format_storage":
                quorate.format_storage(own, CLUSTER, standalone=True)
            async with quorate.Client([address]) as client:
                known = names | {"client": client, "node": node, "settings": own}
                try:
                    await run(program, known)
                except Exception as error:
                    raise AssertionError(f"the example of {name} failed:\n{program}") from error
            printed[name] = capsys.readouterr().out
    assert " b'committed by a majority, or not at all'\n" in printed["Client"]
    assert " b'committed by a majority, or not at all'\n" in printed["sync.Client"]
    assert printed["Node"].startswith("committed at offset ")
    assert printed["Endpoint"] == "CONTROLLER://controller-2:9093\n"
    assert printed["AdminError"].startswith("VOTER_NOT_FOUND ")
    assert printed["ConditionFailedError"].startswith("somebody was faster, at offset ")
    assert printed["recipes.KeyValue"] == "b'green'\n"
    assert printed["recipes.Counter"] == "2\n"
    assert printed["recipes.Lock"].startswith("holding the lock with fencing token ")
    assert printed["recipes.Leadership"].startswith("worker-7 ")
    assert printed["UnreachableError"].startswith("nothing was appended: {'127.0.0.1:1': ")
    assert "already formatted" in printed["FormatError"]
    assert "node.id=one" in printed["ConfigError"]
    assert "is not formatted" in printed["NodeError"]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_public_methods_have_docstrings_and_types(name: str) -> None:
    documented = DOCUMENTED[name]
    assert inspect.getdoc(documented)
    recipes = ("KeyValue", "Counter", "Lock", "Election")
    has_methods = ("Node", "StateMachine", "StateSnapshot", "sync.Node", "sync.Client")
    if name in has_methods or name.removeprefix("recipes.") in recipes:
        for method, found in inspect.getmembers(documented):
            if method.startswith("_") or not (callable(found) or isinstance(found, property)):
                continue
            function = found.fget if isinstance(found, property) else found
            assert inspect.getdoc(function), f"{name}.{method}"
            assert "return" in inspect.get_annotations(function), f"{name}.{method}"


def test_the_synchronous_interface_mirrors_the_asynchronous_one() -> None:
    for ours, theirs in ((quorate.sync.Node, quorate.Node), (quorate.sync.Client, quorate.Client)):
        for name, found in inspect.getmembers(ours, inspect.isfunction):
            if name.startswith("_") or name in ("start", "stop"):
                continue
            mirrored = inspect.signature(getattr(theirs, name))
            asked = inspect.signature(found).parameters
            assert asked.items() <= mirrored.parameters.items(), name


def test_the_import_is_quick_and_knows_its_names() -> None:
    program = (
        "import sys, quorate\n"
        "assert not {'grpc', 'asyncio', 'quorate.raft'} & sys.modules.keys(), sys.modules.keys()\n"
        "assert set(quorate.__all__) <= set(dir(quorate))\n"
        "for name in quorate.__all__: getattr(quorate, name)\n"
        "from quorate import *\n"
        "print(Node, sync.Node, StateMachine)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="has no attribute 'Nod'"):
        quorate.Nod  # noqa: B018


def test_a_node_takes_a_properties_file(tmp_path: Path) -> None:
    """Formatting reads the same file."""
    (port,) = free_ports(1)
    file = tmp_path / "controller.properties"
    texts = settings(tmp_path, 1, [port], **{"process.roles": "controller"})
    texts["controller.quorum.bootstrap.servers"] = f"{HOST}:{port}"
    texts["controller.listener.names"] = "CONTROLLER"
    file.write_text("".join(f"{name}={value}\n" for name, value in texts.items()))
    voters = f"1-{random_uuid()}@{HOST}:{port}"
    done = quorate.format_storage(file, CLUSTER, initial_controllers=voters)
    assert [voter.id for voter in done.voters] == [1]

    async def append() -> int:
        async with quorate.Node(str(file), KeyValues()) as node:
            return (await node.append([(b"a", b"1")])).epoch

    assert asyncio.run(append()) >= 1
