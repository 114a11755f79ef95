"""Commands that are printed can be typed as they stand, however the program was called."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("checkrein")


@pytest.mark.parametrize("is_on_path", [True, False])
def test_a_printed_command_names_the_program_so_that_the_shell_finds_it(tmp_path: Path, *, is_on_path: bool) -> None:
    folders = [str(PROGRAM.parent)] if is_on_path else []
    environment = {"PATH": os.pathsep.join([*folders, "/usr/bin", "/bin"]), "XDG_STATE_HOME": str(tmp_path)}
    printed = subprocess.run(
        [PROGRAM, "list"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert printed.stdout.splitlines()[-1] == f"next: {'checkrein' if is_on_path else PROGRAM} run PATH"
