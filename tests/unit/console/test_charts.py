"""The options of the plots: what they show, and that no label covers another."""

from __future__ import annotations

from typing import Any

from quorate.console import charts
from quorate.console.state import POINTS_MAX, QuorumState

from tests.unit.console.test_state import NOW, key, leaderless, led, status


def test_a_short_history_is_plotted_point_by_point() -> None:
    state = QuorumState()
    for second in range(3):
        state.apply(led(at_ms=NOW + 1_000 * second))
    assert [value for _, value in charts.latency(state)["series"][0]["data"]] == [2.5] * 3
    assert [each["name"] for each in charts.lag(state)["series"]] == [
        "controller 1", "controller 2", "controller 3",
    ]  # fmt: skip
    assert charts.leader_terms(state)["yAxis"]["data"] == ["controller 1"]


def test_a_long_history_keeps_its_peaks() -> None:
    state = QuorumState()
    for second in range(POINTS_MAX):
        behind = 60 if second == 777 else 0
        voters = [status(key(1)), status(key(2)), status(key(3), end=100 - behind)]
        state.apply(led(voters=voters, at_ms=NOW + 1_000 * second))
    for options in (charts.latency(state), charts.lag(state)):
        for series in options["series"]:
            assert charts.POINTS_SHOWN / 2 < len(series["data"]) <= charts.POINTS_SHOWN + 1
            assert series["data"] == sorted(series["data"])
    assert [NOW + 777_000, 60] in charts.lag(state)["series"][2]["data"]


def test_many_observers_do_not_fill_the_plot() -> None:
    state = QuorumState()
    observers = [status(key(100 + n), end=n) for n in range(charts.OBSERVERS_SHOWN + 5)]
    state.apply(led(observers=observers))
    names = [series["name"] for series in charts.lag(state)["series"]]
    slowest = [f"observer {100 + n}" for n in range(charts.OBSERVERS_SHOWN)]
    assert names == ["controller 1", "controller 2", "controller 3", *slowest]
    assert charts.lags_left_out(state) == 5


def test_plots_without_data_are_recognized() -> None:
    state = QuorumState()
    plots = (charts.leader_terms, charts.latency, charts.lag)
    assert not any(charts.has_data(plot(state)) for plot in plots)
    state.apply(leaderless())
    assert [charts.has_data(plot(state)) for plot in plots] == [True, False, False]
    state.apply(led(at_ms=NOW + 1_000))
    assert all(charts.has_data(plot(state)) for plot in plots)


def test_labels_have_places_of_their_own() -> None:
    """The legend is below the axis, no axis has a title, and labels of terms may be left out."""
    state = QuorumState()
    state.apply(led(by=1, epoch=3))
    state.apply(leaderless(NOW + 1_000))
    state.apply(led(by=1, epoch=5, at_ms=NOW + 2_000))
    lag = charts.lag(state)
    assert lag["legend"]["bottom"] == 0
    assert lag["grid"]["bottom"] >= 60
    for options in (lag, charts.latency(state), charts.leader_terms(state)):
        assert "name" not in options["yAxis"]
        assert options["xAxis"]["axisLabel"]["hideOverlap"]
    terms = charts.leader_terms(state)["series"]
    labels: list[dict[str, Any]] = [term["data"][0]["label"] for term in terms]
    assert [label["formatter"] for label in labels if label["show"]] == ["epoch 3", "epoch 5"]
    for term, label in zip(terms, labels, strict=True):
        assert term["labelLayout"] == {"hideOverlap": True}
        assert label["position"] == "top"
        assert label["distance"] > term["lineStyle"]["width"] / 2, "above the bar"
