"""From bytes of a log to typed Arrow columns."""
