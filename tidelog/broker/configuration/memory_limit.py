"""The memory limit of the control group of this process, and the settings that depend on it.

A container with a memory limit is killed by the kernel when the limit is passed. Limits of parents hold too.

`usable_cores` says on how many cores it may run.

Source: the kernel's Documentation/admin-guide/cgroup-v2.rst (memory.max) and cgroup-v1/memory.rst.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tidelog.broker.configuration.broker_config import BrokerConfig


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


_OWN_BYTES = 64 << 20
"""What the broker needs for itself."""
_LEAST_BYTES = 4 << 20
# A request may be held twice while it is read, and freed memory is not given back at once.
_SHARE = 4
_SOURCE = "the memory limit of the control group"


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """The lowest limit of the control groups of this process; None if there is none."""
    files = control_group_files(root, "memory", "memory.max", "memory.limit_in_bytes")
    return min((limit for file in files for limit in _number(file)), default=None)


def usable_cores(root: Path = Path("/")) -> int:
    """The cores that this process may use at once, at least 1: by its affinity and its control groups."""
    cores = [len(os.sched_getaffinity(0))]
    for file in control_group_files(root, "cpu", "cpu.max", "cpu.cfs_quota_us"):
        cores.extend(_cores(file))
    return max(1, min(cores))


def _cores(file: Path) -> list[int]:
    """The whole cores that a quota allows; nothing without one."""
    if file.name == "cpu.max":
        quota, _, period = (_text(file) or "max").partition(" ")
    else:
        quota, period = _text(file), _text(file.with_name("cpu.cfs_period_us"))
    if not quota.isdecimal() or not period.isdecimal() or not int(period):
        return []
    return [math.ceil(int(quota) / int(period))]


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _number(file: Path) -> list[int]:
    """The number in a file; nothing if it says `max` or is not there."""
    text = _text(file)
    return [int(text)] if text.isdecimal() else []


def within_limit(config: BrokerConfig, limit_bytes: int | None) -> BrokerConfig:
    """The settings with lower bounds of memory, if the limit requires them and they were not set."""
    if limit_bytes is None:
        return config
    share = max((limit_bytes - _OWN_BYTES) // _SHARE, _LEAST_BYTES)
    lower = {"log_cleaner_dedupe_buffer_size": share}
    if not config.is_set("queued.max.bytes") and not config.is_set("socket.request.max.bytes"):
        lower |= {"queued_max_bytes": share, "socket_request_max_bytes": share // 2}
    changed = {
        name: bound
        for name, bound in lower.items()
        if name not in config.sources and bound < getattr(config, name)
    }
    return replace(config, **changed, sources={**config.sources, **dict.fromkeys(changed, _SOURCE)})  # type: ignore[arg-type]
