"""A container for a process that may be killed: prints its id and its address, and waits for a line."""

import sys

from tidelog.testcontainers import TidelogContainer

[image] = sys.argv[1:]
with TidelogContainer(image).with_reuse().with_env("TIDELOG_TOPICS", "orders") as container:
    print(container.get_container_id(), container.get_bootstrap_server(), flush=True)
    sys.stdin.readline()
