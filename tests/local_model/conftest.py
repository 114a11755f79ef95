"""A real model, asked over the wires of every adapter; for all tests one server in a process of its own."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkrein.providers.model import WireModel
from checkrein.providers.registry import anthropic, compatible

SERVE = Path(__file__).with_name("serve.py")
SECONDS = 30
MODEL = "smollm2"
WIRES = ("chat", "responses", "messages")


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the model until the last test is over; give the address."""
    python = os.environ.get("CHECKREIN_LOCAL_MODEL", "")
    assert python, "these tests are run by ./dev test-local-model, which installs the model"
    log = tmp_path_factory.mktemp("server") / "log"
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [Path(python).absolute(), SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address, log.read_text(encoding="utf-8")
            yield address
        finally:
            process.stdin.close()
            try:
                process.wait(timeout=SECONDS)
            finally:
                process.kill()


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """The wire that a test goes over."""
    return str(request.param)


@pytest.fixture
def model(wire: str, url: str, monkeypatch: pytest.MonkeyPatch) -> WireModel:
    """The model behind one wire, which says what is most probable."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none-is-needed")
    settings = {"base_url": f"{url}/v1", "temperature": 0, "max_output_tokens": 200, "timeout": SECONDS}
    return anthropic(MODEL, settings) if wire == "messages" else compatible(MODEL, {**settings, "api": wire})
