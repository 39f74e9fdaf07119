"""Builds the images of containers/ and runs them.

run.py CONTAINERS LIBRARY: the folder of the definitions, and libkauri. Needs root, since it gives control groups
limits. The last line is the number of tests that passed.

podman builds the Containerfile and runs what comes of it. Apptainer is in no Debian: of its definition the steps are
taken by hand, and what comes of them is run as Apptainer does, by an ordinary user in a user namespace, on an image
that can't be written, with the host's network, /proc, /sys and /dev.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.parse

from kauri_server import STOP_SECONDS_MAX, command, free_port

LIMIT_BYTES = 512 << 20
# Fewer than the server needs.
LITTLE_BYTES = 64 << 20
NOBODY = 65534


def check(what, got, want):
    if got != want:
        sys.exit(f"{what}: {got}, not {want}")


def passed(name):
    print(f"ok {name}")
    return 1


@contextlib.contextmanager
def running(arguments):
    """A server by this command, once it is ready: what it has logged until then. It has to end in order."""
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        lines, logged = [], {}
        for line in process.stdout:
            lines.append(line)
            entry = json.loads(line) if line.startswith("{") else {"msg": "", "attr": {}}
            logged[entry["msg"]] = entry["attr"]
            if entry["msg"] == "Waiting for connections":
                break
        else:
            sys.exit(f"{arguments} did not start a server:\n{''.join(lines)}")
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield logged
        process.send_signal(signal.SIGTERM)
        check(f"the end of {arguments}", process.wait(STOP_SECONDS_MAX), 0)
    finally:
        process.kill()
        process.wait()


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
            check(f"{what}: the limit", logged["Memory is limited by a control group"]["limitBytes"], LIMIT_BYTES)
            # Only libibverbs can say so.
            check(f"{what}: RDMA", logged["RDMA is off"], {"reason": "there is no RDMA device"})
            count = command(port, {"count": "kept", "$db": "test"})["n"]
            check(f"{what}: documents", count, stored)
            insert = {"insert": "kept", "documents": [{"_id": stored}], "writeConcern": {"w": 1}, "$db": "test"}
            check(f"{what}: inserted", command(port, insert)["n"], 1)
    said = refused(start(free_port(), LITTLE_BYTES))
    if f"limits its memory to {LITTLE_BYTES >> 20} MB" not in said:
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


class Podman:
    """podman with images and containers of its own."""

    def __init__(self, directory):
        # runc knows control groups of version 1 beside those of version 2; limits are no higher than everybody's.
        self.command = ["podman", "--root", directory / "images", "--runroot", directory / "run", "--runtime", "runc"]
        self.data, self.sockets = directory / "data", directory / "sockets"
        self.data.mkdir()
        self.sockets.mkdir()

    def build(self, context):
        subprocess.run([*self.command, "build", "--quiet", "--tag", "kauri", context], check=True, stdout=sys.stderr)

    def start(self, port, limit):
        run = ["run", "--rm", "--network", "host", "--memory", str(limit), "--volume", f"{self.data}:/data"]
        run += ["--volume", f"{self.sockets}:/tmp", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
        return [*self.command, *run, "kauri", "serve", "--dbpath", "/data", "--port", str(port)]

    def remove(self):
        subprocess.run([*self.command, "rmi", "--all", "--force"], check=True, stdout=subprocess.DEVNULL)

    def configured(self):
        """What the image runs by itself."""
        inspected = subprocess.run([*self.command, "inspect", "kauri"], check=True, capture_output=True).stdout
        config = json.loads(inspected)[0]["Config"]
        return config["Entrypoint"] + config["Cmd"]


def memory_group():
    """A control group that may limit memory, of this process's own or at the top; and the file for its limit."""
    lines = [line.strip().split(":", 2) for line in open("/proc/self/cgroup")]
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            return pathlib.Path(f"/sys/fs/cgroup/memory{path}/kauri-containers-{os.getpid()}"), "memory.limit_in_bytes"
    top = pathlib.Path("/sys/fs/cgroup")
    (top / "cgroup.subtree_control").write_text("+memory")
    return top / f"kauri-containers-{os.getpid()}", "memory.max"


class Apptainer:
    """What Apptainer makes of the definition, and how it runs that."""

    # As Apptainer: /tmp and what belongs to the kernel are the host's, the image itself can't be written.
    ENTER = """
    set -e
    mount --rbind "$1" "$1"
    mount -o remount,ro,bind "$1"
    for place in proc sys dev tmp; do mount --rbind /$place "$1/$place"; done
    mount --bind "$2" "$1/data"
    image=$1
    shift 2
    exec chroot "$image" "$@"
    """

    def __init__(self, definition, image, directory):
        self.image, self.data = image, directory / "data"
        self.data.mkdir()
        os.chown(self.data, NOBODY, NOBODY)
        text = [line for line in definition.read_text().splitlines() if line and not line.startswith("#")]
        check("the definition's head", text[:2], ["Bootstrap: localimage", f"From: {image.name}"])
        sections = {}
        for line in text[2:]:
            if line.startswith("%"):
                steps = sections.setdefault(line, [])
            else:
                steps.append(line)
        check("the definition's sections", set(sections), {"%labels", "%runscript"})
        script = image / ".singularity.d" / "runscript"
        script.parent.mkdir()
        script.write_text("#!/bin/sh\n" + "\n".join(sections["%runscript"]) + "\n")
        script.chmod(0o755)
        self.group, self.limit_file = memory_group()
        self.group.mkdir()

    def start(self, port, limit):
        (self.group / self.limit_file).write_text(str(limit))
        join = f'echo $$ >{self.group}/cgroup.procs; exec "$@"'
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        user += ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", self.ENTER]
        return ["bash", "-c", join, "-", *user, "-", self.image, self.data, "/.singularity.d/runscript", "--port", str(port)]

    def remove(self):
        self.group.rmdir()


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
        (directory / "apptainer").mkdir(mode=0o755)
        apptainer = Apptainer(context / "kauri.def", context / "image", directory / "apptainer")
        after.callback(apptainer.remove)
        serves("the definition's steps", apptainer.start)
        count += passed("an ordinary user runs what the definition's steps give")
    print(count)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
