"""Processes of torch.distributed for tests: forks of one interpreter that has imported what the
script does, where torchrun starts each anew.

    python -m tests.tools.ranks WORLD SCRIPT FOLDER

The exit status is 1 where one has failed, which ends the others.
"""

import os
import runpy
import signal
import socket
import sys
import traceback
from pathlib import Path


def main(world: int, script: str, folder: str) -> int:
    """Nothing is computed before the forks, so that they start without threads."""
    lines = Path(script).read_text(encoding="utf-8").splitlines()
    exec("\n".join(line for line in lines if line.startswith(("import ", "from "))), {})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world)}
    running = set()
    for rank in range(world):
        child = os.fork()
        if not child:
            os.environ |= {**where, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            sys.argv = [script, folder]
            os._exit(_run(script))
        running.add(child)
    while running:
        child, status = os.wait()
        running.discard(child)
        if status:
            for other in running:
                os.kill(other, signal.SIGKILL)
            return 1
    return 0


def _run(script: str) -> int:
    try:
        runpy.run_path(script, run_name="__main__")
        return 0
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
