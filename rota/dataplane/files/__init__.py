"""Landing folders as a source."""
