"""Events as canonical bytes, and back: `wire` for the bytes, `schema` for versions of payloads."""
