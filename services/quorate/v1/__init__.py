"""The wire: generated from proto/, never edited (`poe proto`)."""
