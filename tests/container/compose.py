"""A project of docker-compose.yml under a name of its own, so that a user's project stays as it is.

Where the engine has no Compose 2, Debian's is run in a container.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.container.containers import new_name
from tests.container.engine import docker
from tests.container.images import BUILD_SECONDS, debian_image
from tests.tidy.house import ROOT

_SOCKET = os.environ.get("DOCKER_HOST", "").removeprefix("unix://") or "/var/run/docker.sock"


@cache
def _in_a_container() -> str | None:
    """The image of Compose 2, unless the engine has it."""
    if docker("compose", "version", check=False).returncode == 0:
        return None
    with TemporaryDirectory() as folder:
        return debian_image("compose", "docker-compose", Path(folder))


class Compose:
    """`docker compose` for one project, whose files are in `folder` or in this repository."""

    def __init__(
        self, files: tuple[Path, ...], folder: Path, directory: Path, environment: Mapping[str, str]
    ) -> None:
        self.project = new_name()
        self._files = files
        self._folder = folder
        self._directory = directory
        self._environment = environment

    def command(self, *arguments: str) -> list[str]:
        """What runs it."""
        image = _in_a_container()
        options = [part for file in self._files for part in ("--file", str(file))]
        command = [
            "--project-name",
            self.project,
            "--project-directory",
            str(self._directory),
            *options,
            *arguments,
        ]
        if image is None:
            return ["docker", "compose", *command]
        folders = (
            _SOCKET + ":/var/run/docker.sock",
            f"{ROOT}:{ROOT}:ro",
            f"{self._folder}:{self._folder}",
        )
        mounts = [part for each in folders for part in ("--volume", each)]
        variables = [
            part for name, value in self._environment.items() for part in ("--env", f"{name}={value}")
        ]
        return [
            *("docker", "run", "--rm", "--interactive", *mounts, *variables),
            *(image, "docker-compose", *command),
        ]

    def __call__(self, *arguments: str, given: str = "", check: bool = True) -> str:
        """What the command prints. Raises AssertionError with it if it fails."""
        command = self.command(*arguments)
        done = subprocess.run(
            command,
            input=given,
            env=os.environ | dict(self._environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
        assert not check or done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-8000:]}"
        return done.stdout


@contextmanager
def project(
    *files: Path,
    folder: Path,
    directory: Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Compose]:
    """A project that is removed with its volumes at the end. `folder` may hold files that it mounts."""
    compose = Compose(files, folder, directory, environment or {})
    try:
        yield compose
    finally:
        compose("--profile", "*", "down", "--volumes", "--timeout", "10")
