"""The errors of invalid config values. Source: Kafka's ConfigDef and its validators."""

from __future__ import annotations

import pytest
from quorate.metadata.config.config_types import ConfigKey, ConfigKeyType

POLICY = ConfigKey("policy", ConfigKeyType.LIST, "b", choices=("a", "b"))
NUMBER = ConfigKey("number", ConfigKeyType.INT, "1", low=0, high=9)


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        (POLICY, "a, b,a", None),
        (POLICY, "", None),
        (POLICY, "a,c", "Invalid value c for configuration policy: String must be one of: a, b"),
        (POLICY, "a,", "Configuration 'policy' values must not be empty."),
        (POLICY, ",c", "Configuration 'policy' values must not be empty."),
        (NUMBER, " 9 ", None),
        (NUMBER, "-1", "Invalid value -1 for configuration number: Value must be at least 0"),
        (NUMBER, "10", "Invalid value 10 for configuration number: Value must be no more than 9"),
        (NUMBER, "x", "Invalid value x for configuration number: Not a number of type INT"),
    ],
)
def test_faults_have_the_text_of_kafka(key: ConfigKey, value: str, fault: str | None) -> None:
    assert key.fault(value) == fault
