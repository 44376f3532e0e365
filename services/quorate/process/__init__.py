"""What every process of Quorate has, whatever its role: configuration, telemetry, life and end."""
