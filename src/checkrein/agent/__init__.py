"""The stateful agent: it owns a transcript, its queues and its runs."""
