"""Network namespaces, one for each host, on a bridge; and which packets a host loses.

Owns the namespaces and the rules in them. The bridge has a namespace of its own, so no rule of this machine
applies to it. The clients' host is this process. Invariants: packets are lost without a sign to either side;
nothing of it is left behind.
"""

import asyncio
import os
import shutil
from collections.abc import Iterable, Sequence
from typing import Final, Self

from faults.process import BrokerProcessError

_NEEDED: Final = {
    "ip": "iproute2",
    "nft": "nftables",
    "nsenter": "util-linux",
    "mkfs.ext4": "e2fsprogs",
    "etcd": "etcd-server",
}
_PATH: Final = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
_CLIENTS: Final = 254


def lacking() -> str | None:
    """Why namespaces and file systems cannot be made here, and what to do; None if they can."""
    if os.geteuid() != 0:
        return "namespaces and file systems can only be made by root: run it with sudo"
    packages = [package for program, package in _NEEDED.items() if shutil.which(program, path=_PATH) is None]
    return f"not installed: apt-get install {' '.join(packages)}" if packages else None


async def command(*words: str, given: str = "", accepted: Sequence[int] = (0,)) -> str:
    """Run a program of this machine; what it prints. Raises BrokerProcessError with what it complains of."""
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PATH": _PATH},
    )
    printed, complaint = await process.communicate(given.encode())
    if process.returncode not in accepted:
        raise BrokerProcessError(f"{' '.join(words)}: exit code {process.returncode}: {complaint.decode()}")
    return printed.decode()


class Network:
    """Hosts have the numbers that the caller names, 1 to 253. For `async with`."""

    def __init__(self, hosts: Iterable[int]) -> None:
        self._hosts = list(hosts)
        self._name = f"tl{os.getpid()}"
        self._subnet = f"10.231.{os.getpid() % 256}"

    @property
    def clients(self) -> str:
        """The address of this process."""
        return self.address(_CLIENTS)

    def address(self, host: int) -> str:
        return f"{self._subnet}.{host}"

    def inside(self, host: int) -> tuple[str, ...]:
        """What stands before a command that runs on a host. It becomes the command's process."""
        return ("nsenter", f"--net=/run/netns/{self._name}-{host}", "--")

    async def lose(
        self, host: int, *, arriving: Iterable[str] = (), leaving: Iterable[str] = (), percent: int = 100
    ) -> None:
        """From now on the host loses so many of the packets from and to these addresses, and no others. Later
        packets overtake those that TCP sends again."""
        chains = [
            f"chain {hook} {{ type filter hook {hook} priority 0;"
            f" ip {field} {{ {', '.join(found)} }} numgen random mod 100 <= {percent - 1} drop; }}\n"
            for hook, field, found in (("input", "saddr", list(arriving)), ("output", "daddr", list(leaving)))
            if found
        ]
        table = f"table inet faults {{\n{''.join(chains)}}}\n" if chains else ""
        await command(*self.inside(host), "nft", "-f", "-", given=f"flush ruleset\n{table}")

    async def __aenter__(self) -> Self:
        bridge = f"{self._name}-0"
        try:
            await command("ip", "netns", "add", bridge)
            await command("ip", "-n", bridge, "link", "add", "bridge", "type", "bridge")
            await command("ip", "-n", bridge, "link", "set", "bridge", "up")
            for host in self._hosts:
                name = f"{self._name}-{host}"
                await command("ip", "netns", "add", name)
                await self._connect(host, "eth0", ("-n", name))
                await command("ip", "-n", name, "link", "set", "lo", "up")
            await self._connect(_CLIENTS, self._name, ())
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _connect(self, host: int, device: str, where: Sequence[str]) -> None:
        """A cable from a host to the bridge."""
        bridge, port = f"{self._name}-0", f"port{host}"
        ends = ("link", "add", device, "type", "veth", "peer", "name", port, "netns", bridge)
        await command("ip", *where, *ends)
        await command("ip", "-n", bridge, "link", "set", port, "master", "bridge", "up")
        await command("ip", *where, "address", "add", f"{self.address(host)}/24", "dev", device)
        await command("ip", *where, "link", "set", device, "up")

    async def __aexit__(self, *_: object) -> None:
        for host in (*self._hosts, 0):
            await command("ip", "netns", "delete", f"{self._name}-{host}", accepted=(0, 1))
