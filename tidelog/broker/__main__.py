"""`python -m tidelog.broker`: see `broker.command`."""

import sys

from tidelog.broker.command import main

if __name__ == "__main__":
    sys.exit(main())
