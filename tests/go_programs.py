"""Programs in Go that some targets need, compiled from their source, which comes from the module proxy."""

import json
import os
import shutil
import subprocess
from pathlib import Path

_USUAL_FOLDER = "/usr/local/go/bin"
SECONDS = 1800
"""What a busy machine may take to compile one."""


def downloaded(folder: Path, module: str, checksum: str) -> tuple[str, Path]:
    """The command `go`, and the folder of the source of `module`, as in name@v1.0.0.

    `checksum` is that of go.sum. It covers the source's own go.sum, so also what the source imports. Raises
    AssertionError that says what is missing.
    """
    go = shutil.which("go", path=os.pathsep.join([os.environ["PATH"], _USUAL_FOLDER]))
    assert go is not None, f"{module} was left out: it needs Go (https://go.dev/doc/install)"
    command = [go, "mod", "download", "-json", module]
    got = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert got.returncode == 0, f"{module} was left out, it needs a module proxy: {got.stdout}{got.stderr}"
    source = json.loads(got.stdout)
    assert source["Sum"] == checksum
    return go, Path(source["Dir"])


def built(program: Path, module: str, checksum: str, *arguments: str) -> Path:
    """`go` with these arguments in the source of `module` makes `program`. Raises as `downloaded` does."""
    go, source = downloaded(program.parent, module, checksum)
    compile_ = [go, arguments[0], "-mod=readonly", "-o", str(program), *arguments[1:]]
    subprocess.run(compile_, cwd=source, timeout=SECONDS, check=True)
    return program
