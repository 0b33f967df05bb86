"""Tools from the package index of Python, beside what is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_TOOLS = ("kubernetes-validate==1.37.0", "check-jsonschema==0.39.0", "testcontainers==4.15.0")


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which Python finds the tools."""
    folder = tmp_path_factory.mktemp("tools")
    uv = Path(sys.executable).parent / "uv"
    install = [str(uv), "pip", "install", "--python", sys.executable, "--target", str(folder), *_TOOLS]
    subprocess.run(install, check=True)
    return os.environ | {"PYTHONPATH": str(folder)}
