"""Runs the C client's tests against separate servers: over each transport, directly and under a memory checker; the
static library; another language.

run.py PREFIX [TRANSPORT…]: PREFIX is the directory of the client and the test programs, see c.sh. Transports select
the tests over these, directly: tcp, unix, sharedMemory, and rdma if KAURI_RDMA_ADDRESS is set. The last line is the
number of tests that passed.
"""

import os
import subprocess
import sys

from kauri_server import Server

CHECKER = ["valgrind", "-q", "--error-exitcode=9", "--fair-sched=yes", "--leak-check=full"]
CHECKER += ["--show-leak-kinds=all", "--errors-for-leak-kinds=all"]


def uri(server, transport):
    options = {
        "tcp": "sharedMemory=off&rdma=off",
        "unix": "sharedMemory=off&rdma=off",
        "sharedMemory": "sharedMemory=require",
        "rdma": "rdma=require",
    }
    return f"{server.address(transport)}?{options[transport]}"


def passed(command):
    """Runs a program whose last line of output counts its tests."""
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        sys.exit(f"{ran.stdout}{' '.join(command)} ended with {ran.returncode}")
    lines = ran.stdout.splitlines()
    count = int(lines[-1])
    if sum(line.startswith("ok ") for line in lines) != count:
        sys.exit(f"not {count} tests: {ran.stdout}")
    return count


def with_server(command, is_killed=False):
    server = Server()
    try:
        count = passed(command(server))
        if not is_killed and server.stop() != 0:
            sys.exit("the server did not end in order:\n" + server.log_end())
        return count
    finally:
        server.remove()


def over(transport, prefix, checker=()):
    program = [*checker, f"{prefix}/tests/tests"]
    return with_server(
        lambda server: [*program, uri(server, transport), transport, "--process"], is_killed=True
    )


def main(prefix, *transports):
    # Programs load the library that they were linked with.
    os.environ["LD_LIBRARY_PATH"] = f"{prefix}/lib"
    if transports:
        print(sum(over(transport, prefix) for transport in transports))
        return
    here = os.path.dirname(os.path.abspath(__file__))
    count = 0
    for checker in ([], CHECKER):
        for transport in ("tcp", "unix", "sharedMemory"):
            count += over(transport, prefix, checker)
    count += with_server(lambda server: [f"{prefix}/tests/tests-static", uri(server, "tcp"), "tcp"])
    library = f"{prefix}/lib/libkauri.so.0"
    python = [sys.executable, f"{here}/other_language.py", library]
    count += with_server(lambda server: [*python, uri(server, "sharedMemory")])
    print(count)


if __name__ == "__main__":
    main(*sys.argv[1:])
