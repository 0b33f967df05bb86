"""`python -m bench.loads LOAD OPTIONS`: one load, in this process; OPTIONS are the arguments of its
`run`, in JSON.

Prints what `run` returns as one JSON line. Exit code 1, with the reason, when it raised.
"""

import importlib
import inspect
import json
import sys

import uvloop


def main() -> int:
    load, options = sys.argv[1:]
    run = importlib.import_module(f"bench.loads.{load}").run
    try:
        result = run(**json.loads(options))
        if inspect.iscoroutine(result):
            result = uvloop.run(result)
    except Exception as error:  # Each load and client has errors of its own; the caller judges them.
        print(f"the load failed: {error or repr(error)}", file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
