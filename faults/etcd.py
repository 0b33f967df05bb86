"""Real members of etcd on loopback: started, stopped, continued and killed, each by its number.

Owns their processes and their ports. Data goes to a folder of the caller. Invariant: none is left behind.
"""

import asyncio
import shutil
import signal
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import aiohttp

from faults.process import hold_free_port
from tidelog.broker.cluster.etcd_client import EtcdClient
from tidelog.broker.cluster.store import StoreError

BINARY: Final = shutil.which("etcd")
_READY_SECONDS: Final = 120.0


class EtcdMembers:
    """A cluster of `count` members. `machines`: where each runs, if not on loopback: its address, and what
    stands before a command that runs there."""

    def __init__(
        self,
        folder: Path,
        count: int,
        more: Sequence[str] = (),
        scheme: str = "http",
        machines: Sequence[tuple[str, Sequence[str]]] = (),
    ) -> None:
        self._held = [hold_free_port() for _ in range(2 * count)]
        ports = [held.getsockname()[1] for held in self._held]
        hosts = [address for address, _ in machines]
        each_host = list(zip(hosts or ["localhost"] * count, ports, strict=False))
        self.endpoints = [f"{scheme}://{host}:{port}" for host, port in each_host]
        self._folder = folder
        self._more = more
        self._before = [before for _, before in machines] or [()] * count
        each_peer = zip(hosts or ["127.0.0.1"] * count, ports[count:], strict=True)
        self._peers = [f"http://{host}:{port}" for host, port in each_peer]
        self._processes: dict[int, asyncio.subprocess.Process] = {}

    @property
    def store(self) -> str:
        """What `cluster.store` of their brokers is."""
        return f"etcd:{','.join(self.endpoints)}"

    def peer(self, number: int) -> str:
        """The URL by which the others reach a member."""
        return self._peers[number]

    async def start(self, number: int, *more: str) -> None:
        """Start a member, with more flags; it may have run before."""
        cluster = ",".join(f"m{each}={peer}" for each, peer in enumerate(self._peers))
        arguments = [f"--name=m{number}", f"--data-dir={self._folder}/m{number}", "--logger=zap"]
        arguments += [f"--listen-client-urls={self.endpoints[number]}"]
        arguments += [f"--advertise-client-urls={self.endpoints[number]}"]
        arguments += [f"--listen-peer-urls={self._peers[number]}", f"--initial-cluster={cluster}"]
        arguments += [f"--initial-advertise-peer-urls={self._peers[number]}", *self._more, *more]
        with (self._folder / f"m{number}.log").open("ab") as log:
            self._processes[number] = await asyncio.create_subprocess_exec(
                *self._before[number], BINARY or "etcd", *arguments, stdout=log, stderr=log
            )

    async def stop(self, number: int) -> None:
        """As if it hung: when this returns, no thread of it runs."""
        process = self._processes[number]
        process.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(_READY_SECONDS):
            while set(_states(process.pid)) != {"T"}:  # noqa: ASYNC110 (the kernel does not say)
                await asyncio.sleep(0.001)

    def go_on(self, number: int) -> None:
        self._processes[number].send_signal(signal.SIGCONT)

    async def kill(self, number: int) -> None:
        process = self._processes.pop(number)
        process.kill()
        await process.wait()

    async def kill_all(self) -> None:
        """The end: others may have the ports afterwards."""
        for number in list(self._processes):
            await self.kill(number)
        for held in self._held:
            held.close()

    async def leader(self) -> int:
        """The number of the member that leads, which has to be running, as do most of the others."""
        async with asyncio.timeout(_READY_SECONDS), aiohttp.ClientSession() as session:
            while True:
                for number in self._processes:
                    try:
                        async with session.post(
                            f"{self.endpoints[number]}/v3/maintenance/status",
                            json={},
                            timeout=aiohttp.ClientTimeout(1),
                        ) as response:
                            status = await response.json()
                    except (aiohttp.ClientError, TimeoutError):
                        continue
                    if status.get("leader", "0") == status["header"]["member_id"]:
                        return number
                await asyncio.sleep(0.05)

    async def ready(self, client: EtcdClient) -> None:
        """Return once they answer `client`."""
        async with asyncio.timeout(_READY_SECONDS):
            while True:
                try:
                    await client.call("/v3/kv/range", {"key": "AA=="})
                    return
                except StoreError:
                    await asyncio.sleep(0.05)


def _states(pid: int) -> Iterator[str]:
    """Of the threads of a process, as the kernel names them."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # It has ended meanwhile.
            yield (thread / "stat").read_text().rpartition(")")[2].split()[0]


@asynccontextmanager
async def running_etcd(
    folder: Path,
    count: int = 1,
    more: Sequence[str] = (),
    scheme: str = "http",
    ssl_context: ssl.SSLContext | None = None,
    machines: Sequence[tuple[str, Sequence[str]]] = (),
) -> AsyncIterator[EtcdMembers]:
    """Members that answer, with their data in `folder`, which exists."""
    members = EtcdMembers(folder, count, more, scheme, machines)
    try:
        for number in range(count):
            await members.start(number)
        client = EtcdClient(members.endpoints, ssl_context=ssl_context)
        try:
            await members.ready(client)
        finally:
            await client.close()
        yield members
    finally:
        await members.kill_all()
