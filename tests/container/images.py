"""The images that are tested, built as the Dockerfile says, and what stands in for images of registries.

Where the named base image cannot be pulled, one is made of the same packages: Debian's, by debootstrap. Names
of images that are made here begin with `tidelog-test`, so that no image of a user is replaced.
"""

import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.container.engine import docker, require_engine
from tests.deadline import deadline
from tests.tidy.house import ROOT

BUILD_SECONDS = 3600.0
_BASE = "tidelog-test-base"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# As in Debian's own slim images.
_LEFT_OUT = ("doc", "groff", "info", "linda", "lintian", "locale", "man")


def _is_here(image: str) -> bool:
    return docker("image", "inspect", image, check=False).returncode == 0


def had(image: str) -> bool:
    """Whether the image is here, or could be pulled."""
    return _is_here(image) or docker("pull", image, check=False).returncode == 0


@cache
def base_image() -> str:
    """The base image that the Dockerfile names, or the one that is made here."""
    require_engine()
    [named] = re.findall(r"^ARG DEBIAN_IMAGE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    if had(named):
        return named
    if not _is_here(_BASE):
        assert shutil.which("debootstrap"), f"{named} cannot be pulled: install debootstrap to make it here"
        with TemporaryDirectory() as folder, deadline(f"debootstrap of {_BASE}", BUILD_SECONDS):
            _make_base(Path(folder))
    return _BASE


def _make_base(root: Path) -> None:
    """Debian 13 without documents. It trusts what this machine trusts: a proxy may answer for registries."""
    subprocess.run(["debootstrap", "--variant=minbase", "trixie", str(root)], check=True, capture_output=True)
    left_out = [f"usr/share/{each}" for each in _LEFT_OUT]
    (root / "etc/dpkg/dpkg.cfg.d/docker").write_text(
        "".join(f"path-exclude /{each}/*\n" for each in left_out)
    )
    if _CERTIFICATES.exists():
        trusted = root / "usr/local/share/ca-certificates"
        trusted.mkdir(parents=True, exist_ok=True)
        shutil.copy(_CERTIFICATES, trusted / "host.crt")
    outside = (*left_out, "dev", "var/cache/apt", "var/lib/apt/lists", "var/log")
    importing = subprocess.Popen(["docker", "import", "-", _BASE], stdin=subprocess.PIPE)
    assert importing.stdin is not None
    with importing.stdin, tarfile.open(fileobj=importing.stdin, mode="w|") as archive:
        archive.add(root, ".", filter=lambda each: None if _is_below(each.name, outside) else each)
    assert importing.wait() == 0


def _is_below(name: str, folders: Iterable[str]) -> bool:
    """The folders themselves stay: apt-get fails without /var/log."""
    return any(name.startswith(f"./{each}/") for each in folders)


def built(tag: str, folder: Path, *arguments: str) -> str:
    """The image of the Dockerfile in `folder`, by its tag."""
    base = f"DEBIAN_IMAGE={base_image()}"
    with deadline(f"the build of {tag}", BUILD_SECONDS):
        docker(
            *("build", "--network", "host", "--tag", tag, "--build-arg", base, *arguments, str(folder)),
            seconds=BUILD_SECONDS,
        )
    return tag


@cache
def broker_image() -> str:
    return built("tidelog-test", ROOT)


@cache
def pipeline_image() -> str:
    return built("tidelog-test:pipeline", ROOT, "--build-arg", "EXTRA=pipeline")


def image_of(commit: str, folder: Path) -> str:
    """An earlier commit of this repository in the image of today."""
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
    shutil.copy(ROOT / "Dockerfile", folder)
    return built(f"tidelog-test:{commit}", folder)


def debian_image(name: str, packages: str, folder: Path) -> str:
    """An image with packages of Debian."""
    (folder / "Dockerfile").write_text(
        "ARG DEBIAN_IMAGE\nFROM ${DEBIAN_IMAGE}\n"
        f"RUN apt-get update && apt-get install --yes --no-install-recommends {packages}\n"
    )
    return built(f"tidelog-test-{name}", folder)
