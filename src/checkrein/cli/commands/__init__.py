"""One file per command; each takes what was parsed, does it, and returns an exit code."""
