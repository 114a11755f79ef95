"""`python -m checkrein` is the command `checkrein`.

Python then looks for modules in the current folder first, which may be an untrusted task's; that place is taken off before anything else is imported.
"""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]
    from checkrein.cli.main import main

    sys.exit(main())
