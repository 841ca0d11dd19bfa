# SPDX-License-Identifier: Apache-2.0
"""The Python end of PeerProcess: a script imports this, sets itself up and calls serve(step)."""

import importlib
import sys
import time


def require(module):
    """Imports a module, or tells the benchmark to skip this entry."""
    try:
        return importlib.import_module(module)
    except ImportError:
        print(f"skip: {sys.executable} has no module '{module}' (tools/setup --bench)", flush=True)
        sys.exit(0)


def serve(step, before=lambda: None):
    """Makes as many steps as each line of the input asks for and answers with the seconds they took.

    What is to be done before, each time, is not timed.
    """
    print("ready", flush=True)
    for line in sys.stdin:
        before()
        start = time.perf_counter()
        for _ in range(int(line)):
            step()
        print(time.perf_counter() - start, flush=True)
