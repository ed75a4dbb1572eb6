"""Runs the command line in forks of a process that has imported it, as imports take seconds.

It reads the arguments of a command as a line of JSON, and writes the process id when the command
starts and its exit code when it has ended.
"""

from __future__ import annotations

import json
import os
import sys

import liftbridge_aio._client.parts
import liftbridge_aio.bridge  # noqa: F401
from liftbridge_aio.cli import main

if __name__ == "__main__":
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(2, 1)  # what it prints is for people
            code = 1
            try:
                code = main(json.loads(line))
            finally:
                os._exit(code)
        print(child, flush=True)  # noqa: T201 - what it is for
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)  # noqa: T201 - same
