"""Maintenance windows: when live pods may be restarted for a new template. Times are in UTC."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from quorate_operator.naming import Object

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
START_PATTERN = "^([01][0-9]|2[0-3]):[0-5][0-9]$"
HOURS_MAX = 24


def closed(windows: Iterable[Object], now: dt.datetime) -> str:
    """Why `now` is in none of the windows, "" if it is in one or if there are none."""
    known = [*windows]
    if not known or any(_is_open(each, now) for each in known):
        return ""
    return f"outdated pods wait for a maintenance window: {'; '.join(map(_shown, known))}"


def _is_open(window: Object, now: dt.datetime) -> bool:
    """Whether a window that began today or yesterday is open."""
    hour, minute = map(int, window["start"].split(":"))
    for days_ago in (0, 1):
        day = now - dt.timedelta(days=days_ago)
        begin = day.replace(hour=hour, minute=minute, second=0, microsecond=0)
        end = begin + dt.timedelta(hours=int(window["hours"]))
        if DAYS[day.weekday()] in (window.get("days") or DAYS) and begin <= now < end:
            return True
    return False


def _shown(window: Object) -> str:
    days = ", ".join(window.get("days") or ["daily"])
    return f"{days} from {window['start']} UTC for {window['hours']} h"
