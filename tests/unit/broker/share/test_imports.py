"""A broker without a share group does not load what serves them."""

import subprocess
import sys


def test_what_serves_share_groups_is_imported_with_their_first_use() -> None:
    program = "import sys, tidelog.broker.app; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    early = ("tidelog.broker.share.", "tidelog.broker.coordinator.share_states", "share_coordinator")
    assert not [each for each in loaded.split() if any(name in each for name in early)]
