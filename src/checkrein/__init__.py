"""A runtime for AI agents that can be trusted to work alone."""
