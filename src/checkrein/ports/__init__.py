"""What the core asks of the world: Protocols, and the values they speak. No implementation lives here."""
