"""Work that takes long, spread over the processors: in processes of its own, with results in the order of the parts.

A process is started afresh, so it has nothing of what the tests before it left in memory; what it does must depend on its part alone.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

PROCESSES_AT_MOST = 4

P = TypeVar("P")
R = TypeVar("R")


def spread(work: Callable[[P], R], parts: Sequence[P], *, at_most: int = PROCESSES_AT_MOST) -> Iterator[R]:
    """Yield the result of each part, in order; one part alone is worked on here, where a debugger can follow it.

    Args:
        work: a function of a module, so that another process can find it.
        parts: what it is called with; like the results, they travel pickled.
        at_most: how many processes there may be on a machine with many processors.

    Raises:
        Exception: whatever the first part that fails raises; parts that have not begun by then are left out.
    """
    if len(parts) < 2:
        yield from map(work, parts)
        return
    processes = min(at_most, os.cpu_count() or 1, len(parts))
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(work, parts)
