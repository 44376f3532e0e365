"""What every Quorate process shares: configuration, telemetry, startup and shutdown."""
