"""`python -m tidelog.cli`, which is `tidelog`."""

import sys

from tidelog.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
