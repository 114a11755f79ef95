"""A store, a state folder and a way to run commands for each test of the command line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from checkrein.providers.registry import PROVIDERS
from tests.unit.cli.folders import Printed, Shell, call

Checkrein = Callable[..., Printed]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("CHECKREIN_STORE", raising=False)
    monkeypatch.delenv("CHECKREIN_DEBUG", raising=False)
    for provider in PROVIDERS.values():
        monkeypatch.delenv(provider.key_variable, raising=False)
        monkeypatch.delenv(provider.url_variable, raising=False)
    return Shell(tmp_path)


@pytest.fixture
def checkrein(shell: Shell, capsys: pytest.CaptureFixture[str]) -> Checkrein:
    """Run a command line in this process and return what it printed."""
    assert shell

    def run(*words: str | Path) -> Printed:
        capsys.readouterr()
        code = call(*words)
        out, err = capsys.readouterr()
        return Printed(code, out, err)

    return run
