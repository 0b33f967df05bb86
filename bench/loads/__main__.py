"""`python -m bench.loads LOAD OPTIONS`: one load, in this process; OPTIONS are the arguments of its
`run`, in JSON.

Prints what `run` returns as one JSON line, with how long it ran and its processor time. Exit code 1, with the
reason, when it raised.
"""

import importlib
import inspect
import json
import resource
import sys
import time

import uvloop


def main() -> int:
    load, options = sys.argv[1:]
    run = importlib.import_module(f"bench.loads.{load}").run
    began, used = time.perf_counter(), _cpu_seconds()
    try:
        result = run(**json.loads(options))
        if inspect.iscoroutine(result):
            result = uvloop.run(result)
    except Exception as error:  # Each load and client has errors of its own; the caller judges them.
        print(f"the load failed: {error or repr(error)}", file=sys.stderr)
        return 1
    about = {"run_seconds": time.perf_counter() - began, "run_cpu_seconds": _cpu_seconds() - used}
    print(json.dumps({**about, **result}))
    return 0


def _cpu_seconds() -> float:
    """Of this process, and of its children that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    sys.exit(main())
