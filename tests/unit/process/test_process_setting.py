"""Settings as fields: defaults, required ones, values by field."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from quorate.common.config_types import choice, integer, principals
from quorate.common.setting import by_name, declared_in, required, setting
from quorate.process.properties import ConfigDef, ConfigError, parse_properties, values_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """As configurations of nodes are written."""

    id: int = required("some.id", integer(0), "An id.")
    pause_ms: int = setting("pause.ms", integer(1), "50", "A pause.")
    color: str | None = setting("color", choice("red", "green"), "", "Maybe a color.")
    limit: int | None = setting("limit", integer(1), None, "Maybe a limit.")
    users: tuple[str, ...] = setting("users", principals(), "", "Some users.")
    derived: int = 7


DEF = ConfigDef("test", by_name(declared_in(Config)), {}, lambda _: False, "nothing")


def load(folder: Path, text: str) -> Config:
    path = folder / "test.properties"
    path.write_text(text)
    return Config(**values_of(Config, parse_properties(path, {}, DEF)))


def test_what_is_built_by_hand_has_the_declared_defaults(tmp_path: Path) -> None:
    built = Config(id=1)
    assert (built.pause_ms, built.color, built.limit, built.users) == (50, None, None, ())
    assert built == load(tmp_path, "some.id=1\n")


def test_values_go_to_their_fields(tmp_path: Path) -> None:
    found = load(tmp_path, "some.id=3\npause.ms=9\ncolor=RED\nlimit=2\nusers=User:a;User:b\n")
    assert found == Config(id=3, pause_ms=9, color="red", limit=2, users=("User:a", "User:b"))


def test_a_required_setting_must_be_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"some\.id is not set; accepted: 0 to "):
        load(tmp_path, "pause.ms=9\n")
    with pytest.raises(TypeError, match="id"):
        Config()


def test_a_value_out_of_range_names_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"test\.properties:2: pause\.ms=0: too small"):
        load(tmp_path, "some.id=1\npause.ms=0\n")


def test_a_later_group_declares_a_setting_anew() -> None:
    first, second = declared_in(Config)[:2]
    assert by_name([first], [second], [first]) == {first.name: first, second.name: second}
