"""The check `checksum`: an artifact has exactly the bytes that its SHA-256 says."""

import hashlib
import re
from typing import ClassVar

from checkrein.ports.verifier import CheckContext, Measurement
from checkrein.values import JsonObject
from checkrein.verify.artifacts import finding, open_artifact
from checkrein.verify.base import ArtifactCheck, refuse

__all__ = ["ChecksumCheck"]


class ChecksumCheck(ArtifactCheck, frozen=True, kw_only=True):
    """An artifact has a known SHA-256.

    Attributes:
        sha256: 64 hexadecimal digits.
    """

    name: ClassVar[str] = "checksum"
    revision: ClassVar[str] = "1"
    sha256: str

    def validated(self) -> None:
        """Refuse what is no SHA-256.

        Raises:
            TaskError: it is none.
        """
        if not re.fullmatch(r"[0-9a-fA-F]{64}", self.sha256):
            refuse(
                "sha256",
                f"{self.sha256[:80]!r} is no SHA-256",
                "give the 64 hexadecimal digits that `sha256sum FILE` prints",
            )

    def in_words(self) -> str:
        """Return the title."""
        return f"{self.path} has the SHA-256 {self.sha256[:12]}…"

    def look(self, context: CheckContext) -> Measurement:
        """Read the file once and compare."""
        with open_artifact(context.folder, self.path) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != self.sha256.lower():
            return finding(
                "wrong_checksum", f"{self.path} has the SHA-256 {found}, not {self.sha256.lower()}", {"sha256": found}
            )
        return Measurement(passed=True, text=f"{self.path} has the SHA-256 {found}", data=JsonObject({"sha256": found}))
