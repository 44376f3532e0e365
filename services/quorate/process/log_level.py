"""Changes the log level while the node runs: the dynamic broker config `quorate.log.level`.

As with Kafka's dynamic broker configs, that of the node's id precedes the cluster-wide default, and
both precede the properties file. A value that is not a level is ignored, with a warning.
"""

from __future__ import annotations

import logging

from quorate.metadata.image.configs import ConfigResourceType
from quorate.metadata.image.delta import MetadataDelta
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.process.node_config import NodeConfig
from quorate.telemetry.logs import LogLevel, NodeContext

LOGGER = logging.getLogger(__name__)

LOG_LEVEL = "quorate.log.level"


class LogLevelConfig:
    """Its method `changed` is a listener of the loader."""

    def __init__(self, config: NodeConfig, context: NodeContext) -> None:
        self._context = context
        self._static = self._level = config.log_level
        self._resources = tuple(
            (int(ConfigResourceType.BROKER), name) for name in (str(config.node_id), "")
        )

    def changed(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Set the level if a config of this node has changed it."""
        if delta.configs.isdisjoint(self._resources):
            return
        level = self._configured(image)
        if level is not self._level:
            self._level = level
            self._context.set_level(level)
            LOGGER.warning("%s is %s from now on", LOG_LEVEL, level.value)

    def _configured(self, image: MetadataImage) -> LogLevel:
        for resource in self._resources:
            text = image.configs.of(*resource).get(LOG_LEVEL)
            if text is None:
                continue
            try:
                return LogLevel(text.lower())
            except ValueError:
                levels = ", ".join(LogLevel)
                LOGGER.warning("%s=%s is ignored: accepted: %s", LOG_LEVEL, text, levels)
        return self._static
