"""What must come back to a provider unchanged, marked with the wire that it belongs to.

A transcript outlives the model that wrote it: `Thinking.signature` holds what one wire needs to get back, and no other wire may be sent it. The invariant: what `sealed`
took, `opened` gives back for the same wire, and nothing for another.
"""

from checkrein.providers.stops import Wire

__all__ = ["opened", "sealed"]


def sealed(wire: Wire, payload: str) -> str:
    """Return a signature that says which wire it belongs to."""
    return f"{wire}:{payload}"


def opened(wire: Wire, signature: str) -> str | None:
    """Return what was sealed; None when it belongs to another wire, or is nobody's."""
    owner, colon, payload = signature.partition(":")
    return payload if colon and owner == wire else None
