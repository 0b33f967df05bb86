"""Follows the runbooks of `docs/cluster-operations.md`: runs the commands of a section as an operator types
them.

`systemctl` starts and stops the process of the broker at whose machine the operator is; that broker's data
folder stands for `/var/lib/tidelog`.
"""

import asyncio
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from faults.process import BrokerProcess
from tests.tidy.house import ROOT
from tests.waiting import DEADLINE_SECONDS

DOCUMENT = ROOT / "docs" / "cluster-operations.md"
_BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(section: str) -> list[str]:
    """Those below a heading."""
    _, found, text = DOCUMENT.read_text().partition(f"\n## {section}\n")
    assert found, section
    lines = [line for block in _BLOCK.findall(text.partition("\n## ")[0]) for line in block.splitlines()]
    assert lines, section
    return lines


class Operator:
    """Types commands in `folder`, at the brokers' machines."""

    def __init__(self, folder: Path, bootstrap_servers: Sequence[str]) -> None:
        self._folder = folder
        self._environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "TIDELOG_BOOTSTRAP_SERVERS": ",".join(bootstrap_servers),
        }

    async def follow(self, section: str, at: BrokerProcess) -> None:
        for command in commands(section):
            if command == "systemctl stop tidelog":
                if at.is_running:
                    assert await at.terminate() == 0
            elif command == "systemctl start tidelog":
                await at.start()
            else:
                await self.type(command.replace("/var/lib/tidelog", str(at.data_dir)))

    async def type(self, command: str, **environment: str) -> None:
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            command,
            cwd=self._folder,
            env=self._environment | environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            shown, _ = await asyncio.wait_for(process.communicate(), DEADLINE_SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == 0, f"{command}\n{shown.decode()}"
