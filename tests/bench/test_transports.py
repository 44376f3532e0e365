"""The table of both protocols between controllers."""

from __future__ import annotations

from tests.bench.transports import Line, table


def line(protocol: str, value: float, metric: str = "p50") -> Line:
    about = {"workload": "W1", "metric": metric, "unit": "ms"}
    return about | {"value": value, "peer_protocol": protocol}


def test_a_row_has_both_protocols_and_the_ratio_of_their_medians() -> None:
    lines = [line(protocol, value) for value in (2.0, 1.0, 6.0) for protocol in ("grpc", "kafka")]
    lines += [line("kafka", value) for value in (7.0, 8.0)]
    _, _, row = table(lines).splitlines()
    assert row == "| W1 p50, ms | 1.00 / 2.00 / 6.00 | 1.00 / 6.00 / 8.00 | 3.00 |"


def test_a_figure_of_one_protocol_has_no_row() -> None:
    lines = [line("grpc", 1.0), line("kafka", 1.0), line("grpc", 1.0, "p99")]
    assert "p99" not in table(lines)
