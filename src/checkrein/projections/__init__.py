"""Read models folded from a run's events: what people and planners see, never what decides."""
