"""Tools that break networks, disks and brokers, and check what was stored; not in the wheel."""
