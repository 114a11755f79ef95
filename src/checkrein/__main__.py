"""`python -m checkrein` is the command `checkrein`."""

import sys

from checkrein.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
