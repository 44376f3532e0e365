"""The settings of telemetry: what they take, from where, and what they refuse."""

from __future__ import annotations

import pytest
from quorate.controller.config import ControllerConfig
from quorate.controller.config_reader import load_config
from quorate.process.properties import ConfigError
from quorate.process.telemetry import NodeTelemetry
from quorate.telemetry.logs import LogFormat, LogLevel

BASE = {
    "QUORATE_PROCESS_ROLES": "controller",
    "QUORATE_NODE_ID": "1",
    "QUORATE_LISTENERS": "CONTROLLER://localhost:9093",
    "QUORATE_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "QUORATE_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": "localhost:9093",
    "QUORATE_METADATA_LOG_DIR": "/nowhere",
}


def load(**environment: str) -> ControllerConfig:
    return load_config(None, BASE | {f"QUORATE_{name}": v for name, v in environment.items()})


def test_everything_is_off_by_default() -> None:
    config = load()
    assert config.http_listener is None
    assert config.otlp_endpoint is None
    assert config.trace_sample_ratio == 0
    assert config.log_format is LogFormat.TEXT
    assert config.log_level is LogLevel.INFO
    assert not NodeTelemetry.is_wanted(config)


@pytest.mark.parametrize("variable", ["HTTP_LISTENER", "QUORATE_HTTP_LISTENER"])
@pytest.mark.parametrize(
    ("text", "host", "port"),
    [(":9464", "", 9464), ("127.0.0.1:80", "127.0.0.1", 80), ("[::1]:80", "::1", 80)],
)
def test_the_http_listener_is_an_address(variable: str, text: str, host: str, port: int) -> None:
    config = load(**{variable: text})
    assert config.http_listener == (host, port)
    assert NodeTelemetry.is_wanted(config)
    assert config.warnings == ()


def test_traces_go_to_the_collector() -> None:
    config = load(OTLP_ENDPOINT="http://collector:4317", TRACE_SAMPLE_RATIO="0.25")
    assert config.otlp_endpoint == "http://collector:4317"
    assert config.trace_sample_ratio == 0.25


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"LOG_LEVEL": "verbose"}, "debug, info, warning, error"),
        ({"HTTP_LISTENER": "9464"}, "not host:port"),
        ({"HTTP_LISTENER": ":0"}, "not a port"),
        ({"OTLP_ENDPOINT": "collector:4317"}, "not an http or https URL"),
        ({"OTLP_ENDPOINT": "grpc://collector:4317"}, "not an http or https URL"),
        ({"OTLP_ENDPOINT": "http://collector"}, "not host:port"),
        ({"OTLP_ENDPOINT": "http://c:1", "TRACE_SAMPLE_RATIO": "1.5"}, "too large"),
        ({"OTLP_ENDPOINT": "http://c:1", "TRACE_SAMPLE_RATIO": "-1"}, "not a number"),
        ({"OTLP_ENDPOINT": "http://c:1", "TRACE_SAMPLE_RATIO": "nan"}, "not a number"),
        ({"TRACE_SAMPLE_RATIO": "0.1"}, "set quorate.otlp.endpoint"),
        ({"LOG_FORMAT": "xml"}, "accepted: text, json"),
    ],
)
def test_what_cannot_be_is_one_line(environment: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=r"quorate[.]") as raised:
        load(**environment)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
