"""`capgrade` and `dvc` for tests that start them many times: a server that has imported everything
forks a process a command.

`forked(folder)` starts the server, and gives the folder in which the two are found that ask it. A
command is of the process group of whoever asks, and so killed with it.
"""

import array
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

# What commands import when they need it.
LATER = ["datasets", "dvc.repo.graph", "matplotlib.figure", "networkx", "torch._dynamo"]
CLIENT = """#!{python} -SE
import array, json, os, socket, sys
with socket.socket(socket.AF_UNIX) as to:
    to.connect({address!r})
    told = json.dumps([sys.argv, os.getpgrp(), os.getcwd(), dict(os.environ)]).encode()
    files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]).tobytes())]
    to.sendmsg([len(told).to_bytes(4, "little")], files)
    to.sendall(told)
    sys.exit(int(to.recv(8) or b"137"))
"""


@contextmanager
def forked(folder: Path, prelude: str = "") -> Iterator[Path]:
    """The folder of the commands, for PATH. The server runs `prelude` before it is asked."""
    folder.mkdir(parents=True, exist_ok=True)
    address = f"{folder}/socket"
    for name in ("capgrade", "dvc"):
        command = folder / name
        command.write_text(CLIENT.format(python=sys.executable, address=address))
        command.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.tools.forked", address, prelude],
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert server.stdout is not None and server.stdout.readline() == b"ready\n"
        yield folder
    finally:
        server.terminate()
        server.wait()


def serve(address: str, prelude: str) -> None:
    """Answer until the process is ended. Nothing is computed here, so that children start without
    threads."""
    import dvc.cli
    import dvc.commands.repro
    import dvc.repo.reproduce
    import dvc.stage.cache
    import dvc.stage.run  # noqa: F401

    import capgrade.pipelines.cli as cli
    from capgrade.apps import report  # noqa: F401
    from capgrade.pipelines import publish, regions, relevance, shards  # noqa: F401
    from capgrade.trainer.evaluation import evaluate  # noqa: F401
    from capgrade.trainer.fit import train  # noqa: F401
    from capgrade.trainer.search import index  # noqa: F401
    from tests.kills import no_sync

    mains = {"capgrade": cli.main, "dvc": dvc.cli.main}
    no_sync()
    for name in LATER:
        import_module(name)
    exec(prelude, {})
    with socket.socket(socket.AF_UNIX) as at:
        at.bind(address)
        at.listen()
        print("ready", flush=True)
        while True:
            asked, _ = at.accept()
            size, files, _, _ = asked.recvmsg(4, socket.CMSG_SPACE(12))
            told = b""
            while len(told) < int.from_bytes(size, "little"):
                told += asked.recv(65536)
            ends = list(array.array("i", files[0][2]))
            child = os.fork()
            if not child:
                at.close()
                os._exit(_run(mains, ends, *json.loads(told)))
            for end in ends:
                os.close(end)
            threading.Thread(target=_answer, args=(asked, child), daemon=True).start()


def _run(
    mains: dict[str, Callable[[], int | None]],
    ends: list[int],
    words: list[str],
    group: int,
    folder: str,
    environment: dict[str, str],
) -> int:
    os.setpgid(0, group)
    for number, end in enumerate(ends):
        os.dup2(end, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    name = Path(words[0]).name
    sys.argv = [name, *words[1:]]
    try:
        status = mains[name]() or 0
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _answer(asked: socket.socket, child: int) -> None:
    _, status = os.waitpid(child, 0)
    with asked:
        asked.sendall(str(os.waitstatus_to_exitcode(status) % 256).encode())


if __name__ == "__main__":
    serve(*sys.argv[1:])
