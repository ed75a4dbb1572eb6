"""An adapter without a client: it answers every command with an error, or with bare success."""

from __future__ import annotations

import json
import sys

ERROR = {"type": "error", "success": False, "errorCode": "INTERNAL_ERROR", "message": "no client"}


def main(answer: str) -> None:
    """Answer all commands."""
    for line in sys.stdin:
        kind = json.loads(line)["type"]
        succeeds = answer == "success" or kind in {"init", "shutdown"}
        reply = {"type": kind, "success": True} if succeeds else {**ERROR, "commandType": kind}
        print(json.dumps(reply), flush=True)  # noqa: T201 - to the runner
        if kind == "shutdown":
            return


if __name__ == "__main__":
    main(sys.argv[1])
