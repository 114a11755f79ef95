"""The pure machines: what may happen next, decided without clock, randomness, I/O, logging or asyncio."""
