"""The check `checksum`: the same bytes, or not."""

import hashlib
from pathlib import Path

import pytest

from tests.unit.verify.measuring import measure, refused, write


async def test_only_the_same_bytes_pass(tmp_path: Path) -> None:
    content = b"figures" * 100_000
    options = {"path": "data.bin", "sha256": hashlib.sha256(content).hexdigest().upper()}
    write(tmp_path, "data.bin", content)
    assert (await measure("checksum", options, tmp_path)).passed
    write(tmp_path, "data.bin", content[:-1] + b"!")
    measured = await measure("checksum", options, tmp_path)
    assert measured.code == "wrong_checksum"
    assert measured.data["sha256"] == hashlib.sha256(content[:-1] + b"!").hexdigest()


@pytest.mark.parametrize("digest", ["", "abc", "g" * 64, "0" * 63, "0" * 65])
def test_what_is_no_sha_256_is_refused(digest: str) -> None:
    assert refused("checksum", {"path": "data.bin", "sha256": digest}).key == "sha256"
