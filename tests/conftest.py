"""What every test gets: a home of its own and Hypothesis without deadlines.

Nothing here fakes a part of checkrein. A fixture for one room lives beside that room's tests.
"""

from collections.abc import Iterator

import hypothesis
import pytest

# A deadline measures the machine, and a shared machine is slow now and then; amounts are bounded by max_examples.
hypothesis.settings.register_profile("checkrein", deadline=None, print_blob=True)
hypothesis.settings.load_profile("checkrein")


@pytest.fixture(autouse=True, scope="session")
def _private_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep stores, trust and settings of the person who runs the tests out of reach, also in child processes."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        for kind in ("STATE", "CONFIG", "DATA", "CACHE"):
            patch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
        for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
            patch.delenv(name, raising=False)
        patch.setenv("NO_COLOR", "1")
        patch.setenv("COLUMNS", "120")
        yield
