"""The product uses the field's terms: its code, help, documents, chart and protocol files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.documents import documents
from tests.unit.tidy.source import ROOT, modules, place

WORDS = {
    r"\boffices?\b": "leadership",
    r"\bin clear\b": "unencrypted, plaintext",
    r"\bOurs\b": "Quorate-specific",
    r"\b(is|are|be|was|were) told (so|of|that|everything|nothing)\b": "is notified, receives",
    r"\bhears? of (it|this)\b": "is notified, receives the error",
    r"\bthe other way (about|round)\b": "vice versa",
    r"\bfor certain\b": "certainly",
    r"\bnothing of it\b": "none of it",
    r"\bwhat there is to see\b": "the state",
    r"\blets? (somebody|anybody|someone) in\b": "accepts",
    r"\blook(s|ing)? around\b": "browse",
    r"\bwho (asks|waits|is put off|is refused)\b": "a noun: callers that wait",
    r"\bfor \w+'s sake\b": "for compatibility with",
    r"\bforgets? (a |the )?brokers?\b": "unregister",
    r"\b(what|which) harms nothing\b": "non-destructively",
    r"\basks nobody\b": "unauthenticated",
    r"\btime and again\b": "repeatedly",
    r"\bstands? in the way\b": "blocks",
    r"\bof the processor\b": "CPU",
    r"\btakes? part in time\b": "uses CPU",
    r"\breplaced by itself\b": "replaced automatically",
    r"\bstops all the same\b": "stops anyway",
    r"(?<!there)(?<!There) is no (directory|number|file|time|regular expression|address)\b": (
        "is not a"
    ),
    r"\bas much of a data plane\b": "just enough of a data plane",
    r"\bto play with\b": "quickstart",
}
"""Patterns of private terms and translated idioms, with what to write instead."""

NAMES = {
    "Accompany": "ExtensionFactory",
    "Appends": "AppendHandler",
    "Asker": "RequestContext",
    "Census": "IsrSummary",
    "Changes": "MetadataDelta",
    "Form": "ConfigType",
    "Given": "ParsedProperties",
    "IsrProposals": "AlterPartitionManager",
    "Job": "ElectionTask",
    "Look": "QuorumSnapshot",
    "MetadataSlot": "HandlerRef",
    "Parts": "NodeComponents",
    "ReadableOnly": "DecodeErrorInterceptor",
    "Slot": "HandlerRef",
    "Tenure": "LeaderTerm",
    "Told": "PropagatedState",
    "Turns": "RequestThrottle",
    "Voters": "VotersRecord",
    "Work": "ControllerContext",
    "answered_stream": "server stream (pipelined)",
    "append_serving": "AppendHandler",
    "asking_stream": "client stream (pipelined)",
    "auditrules": "audit_rules",
    "companion": "extension",
    "config_kinds": "config_types",
    "forms": "config types",
    "given": "properties",
    "migrating_steps": "failpoint",
    "mirror": "codec",
    "refusals": "request validation",
    "snapshotaudit": "snapshot_audit",
    "telling": "control requests",
    "text_limits": "limits",
}
"""Names of modules and classes that are private terms, with the field's."""

_PATTERNS = {re.compile(each.replace(" ", r"\s+")): instead for each, instead in WORDS.items()}
_LINE_END = re.compile(r'"?\n[ \t]*(#|"|//)?')
"""The end of a line and the beginning of the next, in a string, a comment or prose."""


def texts() -> Iterator[tuple[Path, str]]:
    for module in modules():
        yield module.path, module.text
    for pattern in ("charts/**/*.yaml", "charts/**/*.tpl", "charts/**/*.txt", "proto/**/*.proto"):
        for path in sorted(ROOT.glob(pattern)):
            yield path, path.read_text()
    for path in documents():
        yield path, path.read_text()


def found_in(text: str) -> Iterator[tuple[int, str, str]]:
    """The position, the words and what to write instead, also across line breaks."""
    flat = _LINE_END.sub(lambda at: " ".ljust(len(at[0])), text)
    for pattern, instead in _PATTERNS.items():
        for at in pattern.finditer(flat):
            yield at.start(), " ".join(at[0].split()), instead


def test_no_private_terms() -> None:
    found = [
        f"{place(path)}:{text.count(chr(10), 0, position) + 1}: {words!r}: write {instead!r}"
        for path, text in texts()
        for position, words, instead in found_in(text)
    ]
    assert not found, "\n".join(found)


def test_no_private_names() -> None:
    found = []
    for module in modules():
        named = [(module.short, 1)]
        named += [
            (node.name, node.lineno) for node in module.nodes if isinstance(node, ast.ClassDef)
        ]
        found += [
            f"{place(module.path)}:{line}: {name}: the field's term is {NAMES[name]}"
            for name, line in named
            if name in NAMES
        ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "the leader lost its office",
        '"it is in "\n        "clear and asks nobody"',
        "# What there\n# is what there is to\n# see",
        "the caller is told\nso",
    ],
)
def test_private_terms_are_found(text: str) -> None:
    assert list(found_in(text))
