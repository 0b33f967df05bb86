"""The container engine of this machine, by its command `docker`.

Owns nothing: containers, volumes and images belong to whoever makes them here.
"""

import subprocess
from typing import Any

from tests.waiting import DEADLINE_SECONDS

_HOW_TO_GET_ONE = (
    "make container needs a container engine, and `docker version` finds none. Install and start one, for "
    "example `apt-get install docker.io debootstrap && systemctl start docker`, or set DOCKER_HOST."
)


def docker(
    *arguments: str, check: bool = True, seconds: float = DEADLINE_SECONDS, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run `docker`; both of its outputs are in stdout. Raises AssertionError with them if it fails."""
    done = subprocess.run(
        ["docker", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
        **more,
    )
    assert not check or done.returncode == 0, f"docker {' '.join(arguments)}:\n{done.stdout[-8000:]}"
    return done


def require_engine() -> None:
    """AssertionError that says what to install where no engine answers."""
    try:
        answered = docker("version", check=False).returncode == 0
    except FileNotFoundError:
        answered = False
    assert answered, _HOW_TO_GET_ONE
