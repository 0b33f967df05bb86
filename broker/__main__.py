"""`python -m broker`: see `broker.command`."""

import sys

from broker.command import main

if __name__ == "__main__":
    sys.exit(main())
