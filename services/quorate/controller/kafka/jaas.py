"""Reads the JAAS configuration of one login module, as in Kafka's `sasl.jaas.config`.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";

Errors never quote the text, because it contains passwords.

Source: Kafka's JaasConfig; the syntax of javax.security.auth.login.Configuration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
      | "(?P<quoted>(?:\\.|[^"\\\n])*)" | '(?P<single>(?:\\.|[^'\\\n])*)'
      | (?P<mark>[=;]) | (?P<word>[^\s"'=;]+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module: its class and its options."""

    name: str
    options: dict[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """Parse exactly one login module. Raises ValueError with a reason that quotes nothing."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise ValueError('not `LoginModule required name="value" … ;`')
    (name, _), (flag, _) = tokens[:2]
    if flag.lower() not in _FLAGS:
        raise ValueError("the word after the login module is not one of its control flags")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    if len(rest) % 3:
        raise ValueError('an option is not name="value"')
    for (key, key_mark), equals, (value, value_mark) in zip(
        rest[::3], rest[1::3], rest[2::3], strict=True
    ):
        if key_mark or value_mark or equals != ("=", True):
            raise ValueError('an option is not name="value"')
        options[key] = value
    return LoginModule(name, options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """The tokens of a text, each with whether it is an unquoted = or ;."""
    found: list[tuple[str, bool]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError("a quotation mark has no counterpart")
        position = match.end()
        for kind in ("quoted", "single", "mark", "word"):
            if (value := match[kind]) is not None:
                is_quoted = kind in ("quoted", "single")
                found.append((_unescaped(value) if is_quoted else value, kind == "mark"))
    return found


def _unescaped(text: str) -> str:
    """Replace the escapes that java.io.StreamTokenizer knows."""
    return _ESCAPE.sub(
        lambda match: (
            chr(int(match[1], 8)) if match[1][0] in "01234567" else _ESCAPED.get(match[1], match[1])
        ),
        text,
    )
