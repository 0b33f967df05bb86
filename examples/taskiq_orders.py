"""Sends a task for each line of standard input, the number of an order: `python taskiq_orders.py`."""

import asyncio
import sys

from taskiq_billing import bill, broker


async def send_orders() -> None:
    await broker.startup()
    while line := await asyncio.to_thread(sys.stdin.readline):
        await bill.kiq(int(line))
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(send_orders())
