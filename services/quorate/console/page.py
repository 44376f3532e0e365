"""The console's web server and its pages (nicegui; only local files).

All users see the same state, which the pages redraw after each poll.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from nicegui import app, ui

from quorate.console.access import Access
from quorate.console.configs_page import ConfigsPage
from quorate.console.overview import OverviewPage
from quorate.console.topics_page import TopicPage, TopicsPage
from quorate.console.watch import Watch


class _Page(Protocol):
    def draw(self) -> None: ...


def serve(watch: Watch, access: Access, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM."""
    app.add_middleware(access.around)

    def redraw(page: _Page) -> None:
        """Redraw a page after each poll, until its browser has been away for some seconds."""
        ui.context.client.on_delete(watch.listen(page.draw))

    @ui.page("/", title="Quorate", dark=None)
    def overview(theme: str = "") -> None:
        redraw(OverviewPage(watch, theme))

    @ui.page("/topics", title="Topics – Quorate", dark=None)
    def topics(theme: str = "") -> None:
        redraw(TopicsPage(watch, theme))

    @ui.page("/topic", title="Topic – Quorate", dark=None)
    def topic(name: str = "", theme: str = "") -> None:
        redraw(TopicPage(watch, theme, name))

    @ui.page("/configs", title="Configs – Quorate", dark=None)
    def configs(theme: str = "") -> None:
        redraw(ConfigsPage(watch, theme))

    async def start() -> None:
        app.state.watching = asyncio.create_task(watch.run(), name="watch")

    async def end() -> None:
        app.state.watching.cancel()
        await watch.close()

    app.on_startup(start)
    app.on_shutdown(end)
    ui.run(host=host, port=port, show=False, reload=False, title="Quorate", favicon="🗳",
           show_welcome_message=False, uvicorn_logging_level="warning")  # fmt: skip
