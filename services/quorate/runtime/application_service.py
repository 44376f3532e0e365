"""The state of applications on the leader, uncommitted records included.

1. It begins when this node gains leadership while application.version is finalized, or when a level
   is finalized while it leads. From then on the driver passes it every batch that it appends.
2. It is usable once the loader has passed the end that the log had at that time: the committed
   state and what this leader appended are then everything that the log contains, and the records
   of earlier leaders in it are committed.
3. It ends with the leadership, or with the level.
"""

from __future__ import annotations

from quorate.applications import WorkingState, changes_of
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.raft import outputs as out
from quorate.records.batch import read_header
from quorate.runtime.driver import RaftDriver
from quorate.runtime.metadata_loader import MetadataLoader


class ApplicationService:
    """Owns the working state. Create it before the driver starts: it listens to the leadership.

    working: None while this node does not lead or application.version is 0.
    """

    def __init__(self, driver: RaftDriver, loader: MetadataLoader) -> None:
        self.working: WorkingState | None = None
        self._driver = driver
        self._loader = loader
        self._leads = False
        driver.add_listener(self)
        loader.add_listener(self._image_changed)

    def committed(self, _offset: int) -> None:
        """Nothing depends on a commit before the loader has passed it."""

    def leadership(self, change: out.LeadershipAcquired | out.LeadershipLost) -> None:
        self._leads = isinstance(change, out.LeadershipAcquired)
        self._end()
        self._begin()

    def _image_changed(self, _image: MetadataImage, changes: MetadataDelta) -> None:
        if changes.features:
            if self._loader.applications is None:
                self._end()
            self._begin()

    def _begin(self) -> None:
        is_on = self._leads and self._loader.applications is not None
        if is_on and self.working is None:
            self.working = WorkingState(self._driver.node.core.log.end_offset)
            self._driver.on_append = self._appended

    def _end(self) -> None:
        self.working = None
        self._driver.on_append = None

    def _appended(self, base_offset: int, batch: bytearray) -> None:
        working = self.working
        assert working is not None, "the driver calls this only while there is a working state"
        working.passed(self._loader.offset)
        working.appended(changes_of(batch, read_header(batch), base_offset))
