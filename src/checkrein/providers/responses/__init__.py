"""The Responses wire of OpenAI, and of the servers that speak it."""
