"""Builds the images of containers/ and runs them.

run.py CONTAINERS LIBRARY: the directory of the definitions, and libkauri. Needs root to set the limits of control
groups. The last line is the number of tests that passed.

podman builds and runs the Containerfile. The tests perform the steps of Apptainer's definition, see images.py.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

from images import Apptainer, Podman, check, running
from kauri_server import STOP_SECONDS_MAX, command, free_port

LIMIT_BYTES = 512 << 20
# Fewer than the server needs.
LITTLE_BYTES = 64 << 20


def passed(name):
    print(f"ok {name}")
    return 1


def refused(arguments):
    """A server that does not start; what it says."""
    ran = subprocess.run(arguments, capture_output=True, text=True, timeout=STOP_SECONDS_MAX)
    if ran.returncode == 0 or "Waiting for connections" in ran.stdout:
        sys.exit(f"{arguments} started: {ran.stdout}")
    return ran.stdout + ran.stderr


def serves(what, start):
    """Whether a server keeps within its group's limit and has what was stored before it began again.

    start(port, limit): the command that starts it.
    """
    for stored in (0, 1):
        port = free_port()
        with running(start(port, LIMIT_BYTES)) as logged:
            check(f"{what}: the limit", logged["Control group limits memory"]["limitBytes"], LIMIT_BYTES)
            # Only libibverbs can say so.
            check(f"{what}: RDMA", logged["RDMA disabled"], {"reason": "no RDMA device found"})
            count = command(port, {"count": "kept", "$db": "test"})["n"]
            check(f"{what}: documents", count, stored)
            insert = {"insert": "kept", "documents": [{"_id": stored}], "writeConcern": {"w": 1}, "$db": "test"}
            check(f"{what}: inserted", command(port, insert)["n"], 1)
    said = refused(start(free_port(), LITTLE_BYTES))
    if f"limits the server's memory to {LITTLE_BYTES >> 20} MB" not in said:
        sys.exit(f"{what}: with too little memory it says {said}")


def complete(image):
    """Whether the image has all that its programs and libraries are linked with, none of it elsewhere."""
    files = [*image.glob("usr/bin/kauri"), *image.glob("usr/lib/**/*.so*")]
    providers = {file.name.split("-rdmav")[0] for file in files if "-rdmav" in file.name}
    if not {"libmlx5", "libmlx4", "librxe", "libirdma"} <= providers:
        sys.exit(f"providers of RDMA: {providers}")
    loader = next(image.glob("usr/lib64/ld-*"))
    for file in files:
        inside = f"/{file.relative_to(image)}"
        listed = subprocess.run(
            ["chroot", image, f"/usr/lib64/{loader.name}", "--list", inside], capture_output=True, text=True
        )
        if listed.returncode or "not found" in listed.stdout:
            sys.exit(f"{inside}: {listed.stdout}{listed.stderr}")


def shares_memory(podman, library):
    """Whether a client on the host has shared memory with the server in the container."""
    port = free_port()
    with running(podman.start(port, LIMIT_BYTES)):
        socket = urllib.parse.quote(str(podman.sockets / f"mongodb-{port}.sock"), safe="")
        client = pathlib.Path(__file__).parents[1] / "clients" / "c" / "other_language.py"
        uri = f"mongodb://{socket}/?sharedMemory=require"
        ran = subprocess.run([sys.executable, client, library, uri], capture_output=True, text=True)
        check("a client with shared memory", (ran.returncode, ran.stdout.splitlines()[-1:]), (0, ["3"]))


def main(containers, library):
    count = 0
    with contextlib.ExitStack() as after:
        # An ordinary user reads from it, below a place that everybody may enter.
        directory = pathlib.Path(tempfile.mkdtemp(prefix="kauri-containers-", dir="/var/tmp"))
        after.callback(shutil.rmtree, directory, ignore_errors=True)
        directory.chmod(0o755)
        context = directory / "containers"
        shutil.copytree(containers, context, ignore=shutil.ignore_patterns("image"))
        subprocess.run([context / "root", os.environ["KAURI"], context / "image"], check=True)
        complete(context / "image")
        count += passed("the image has what its programs load")
        podman = Podman(directory)
        after.callback(podman.remove)
        podman.build(context)
        check("what podman runs", podman.configured(), ["/usr/bin/kauri", "serve", "--dbpath", "/data", "--bind_ip_all"])
        count += passed("podman builds the Containerfile")
        serves("podman", podman.start)
        count += passed("the server keeps within the limit that podman gives it")
        shares_memory(podman, library)
        count += passed("a client on the host has shared memory with a server in a container")
        Apptainer.build(context / "kauri.def", context / "image")
        apptainer = Apptainer(context / "image", directory / "apptainer")
        after.callback(apptainer.remove)
        serves("the definition's steps", apptainer.start)
        count += passed("an ordinary user runs what the definition's steps give")
    print(count)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
