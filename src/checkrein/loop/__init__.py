"""The stateless agent loop: one model response and its tool calls after the other, until the model has nothing more to do."""
