"""Anthropic's Messages API, and the servers that speak it."""
