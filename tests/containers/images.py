"""Ways to run the server in a container: by podman, and as Apptainer does.

Debian has no Apptainer package. The tests perform the steps of its definition and run the result as Apptainer does: by
an ordinary user in a user namespace, on a read-only image, with the host's network, /proc, /sys and /dev. Needs root
to set the limits of control groups.
"""

import contextlib
import copy
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

from kauri_server import STOP_SECONDS_MAX

NOBODY = 65534


def check(what, got, want):
    if got != want:
        sys.exit(f"{what}: {got}, not {want}")


@contextlib.contextmanager
def running(arguments):
    """A server by this command, once it is ready: what it has logged until then. It has to end in order."""
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        lines, logged = [], {}
        for line in process.stdout:
            lines.append(line)
            entry = json.loads(line) if line.startswith("{") else {"msg": "", "attr": {}}
            logged[entry["msg"]] = entry.get("attr", {})
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

    def start(self, port, limit, *options):
        """The command that starts the server, with this limit of memory, or None."""
        run = ["run", "--rm", "--network", "host", "--volume", f"{self.data}:/data"]
        run += ["--memory", str(limit)] if limit else []
        run += ["--volume", f"{self.sockets}:/tmp", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
        return [*self.command, *run, "kauri", "serve", "--dbpath", "/data", "--port", str(port), *options]

    def beside(self, name):
        """Containers of the same image with data of their own."""
        other = copy.copy(self)
        other.data = self.data.with_name(name)
        other.data.mkdir()
        return other

    def remove(self):
        subprocess.run([*self.command, "rmi", "--all", "--force"], check=True, stdout=subprocess.DEVNULL)

    def configured(self):
        """What the image runs by itself."""
        inspected = subprocess.run([*self.command, "inspect", "kauri"], check=True, capture_output=True).stdout
        config = json.loads(inspected)[0]["Config"]
        return config["Entrypoint"] + config["Cmd"]


def memory_group(name):
    """A control group that may limit memory, of this process's own or at the top; and the file for its limit."""
    name = f"kauri-{name}-{os.getpid()}"
    lines = [line.strip().split(":", 2) for line in open("/proc/self/cgroup")]
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            return pathlib.Path(f"/sys/fs/cgroup/memory{path}/{name}"), "memory.limit_in_bytes"
    top = pathlib.Path("/sys/fs/cgroup")
    (top / "cgroup.subtree_control").write_text("+memory")
    return top / name, "memory.max"


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

    sockets = "/tmp"

    def __init__(self, image, directory, locked=None):
        """locked: what of its memory it may keep in place, in KB or `unlimited`; None: what is usual."""
        self.image, self.data, self.locked = image, directory / "data", locked
        self.data.mkdir(parents=True)
        os.chown(self.data, NOBODY, NOBODY)
        self.group, self.limit_file = memory_group(directory.name)
        self.group.mkdir()

    @staticmethod
    def build(definition, image):
        """Does what the definition says to this directory."""
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

    def start(self, port, limit, *options):
        """The command that starts the server, with this limit of memory, or None."""
        none = "max" if self.limit_file == "memory.max" else "-1"
        (self.group / self.limit_file).write_text(str(limit or none))
        join = f'echo $$ >{self.group}/cgroup.procs; ' + (f"ulimit -l {self.locked}; " if self.locked else "")
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        user += ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", self.ENTER]
        inside = [self.image, self.data, "/.singularity.d/runscript", "--port", str(port), *options]
        return ["bash", "-c", join + 'exec "$@"', "-", *user, "-", *inside]

    def remove(self):
        self.group.rmdir()
