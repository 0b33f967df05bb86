"""When Python's collector of cycles runs in a broker process, so that no run blocks the loop for long.

A collection takes 0.2 to 0.3 µs per object that it examines, and a large request that waits has hundreds of
thousands. Requests and their refusals leave no cycles, so it need not run often.

Invariants: the objects of the start are never examined. A collection of the young generations examines about
70,000 objects, 20 ms; with rarer ones it would examine all elements of all large requests that are alive. Old
objects are examined by `collect_old` only, and no more than `MOST_BLOCKS`.
"""

import gc
import sys
from typing import Final

_NEVER: Final = 2**31 - 1
THRESHOLDS: Final = (10_000, 5, _NEVER)
PERIOD_SECONDS: Final = 60.0
MOST_BLOCKS: Final = 80_000
"""Each object of the collector takes a block of memory; texts and numbers take the others."""


class Collector:
    """Begins with the objects that there are, which stay. Call `collect_old` every `PERIOD_SECONDS`."""

    def __init__(self) -> None:
        gc.freeze()
        self._frozen_blocks = sys.getallocatedblocks()
        gc.enable()
        gc.set_threshold(*THRESHOLDS)

    def collect_old(self) -> None:
        """Free the cycles of all objects that are not frozen, or freeze them where there are too many."""
        blocks = sys.getallocatedblocks()
        self._frozen_blocks = min(self._frozen_blocks, blocks)
        # Frozen objects may have made way for as many new ones. To list objects is cheap.
        if blocks - self._frozen_blocks > MOST_BLOCKS or len(gc.get_objects(2)) > MOST_BLOCKS:
            gc.collect(1)
            gc.freeze()
            self._frozen_blocks = sys.getallocatedblocks()
        else:
            gc.collect()
