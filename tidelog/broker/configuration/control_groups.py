"""The files with the limits of this process's control groups.

Source: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.
"""

from collections.abc import Iterator
from pathlib import Path


def control_group_files(root: Path, controller: str, name: str, name_in_v1: str) -> Iterator[Path]:
    """A file of each group, from the process's own up to the mount; they need not exist."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for group in groups:
        _, controllers, path = group.split(":", 2)
        if not controllers:
            mount, file = root / "sys/fs/cgroup", name
        elif controller in controllers.split(","):
            mount, file = root / "sys/fs/cgroup" / controller, name_in_v1
        else:
            continue
        # The path may be the host's: then a container finds its own group at the mount itself.
        folder = mount / path.lstrip("/")
        while folder.is_relative_to(mount):
            yield folder / file
            folder = folder.parent
