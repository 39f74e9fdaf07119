"""A Kauri server for a test: on a free loopback port, with its own data directory.

As a program: kauri_server.py [SERVER FLAG…] -- COMMAND…
runs COMMAND with KAURI_URI (and the Unix domain socket's path, KAURI_SOCKET) in its environment, stops the server and
returns COMMAND's status. It fails if the server did not shut down cleanly.

KAURI_FLAGS holds flags that every server gets, separated by spaces. If KAURI_RDMA_ADDRESS is set, the server also
listens there, and does not start without RDMA.
"""

import atexit
import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import urllib.parse

import bson

# A start takes a fraction of a second; only a hanging one reaches this limit.
READY_SECONDS_MAX = 180
STOP_SECONDS_MAX = 60
RDMA_ADDRESS = os.environ.get("KAURI_RDMA_ADDRESS")


def free_port():
    """A port that is free, and that no outgoing connection gets while a server that had it starts again."""
    # Not by the seed that a test has chosen: others may have chosen it as well.
    ports = random.SystemRandom().sample(range(20000, 32000), 100)
    for port in ports:
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise RuntimeError(f"none of these ports is free: {ports}")


def command(port, body):
    """The reply to one command of the server at this port, by a connection that is this one request and nothing else."""
    document = bson.encode(body)
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as replies:
        connection.sendall(struct.pack("<iiiiIB", 21 + len(document), 1, 0, 2013, 0, 0) + document)
        header = replies.read(21)
        return bson.decode(replies.read(int.from_bytes(header[:4], "little") - 21))


def threads(pid):
    """A line for each thread of a process: its name, its state and where in the kernel it is."""
    lines = []
    for task in sorted(pathlib.Path(f"/proc/{pid}/task").iterdir()):
        with contextlib.suppress(OSError):
            name, wait, call = ((task / f).read_text().strip() for f in ("comm", "wchan", "syscall"))
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            lines.append(f"{task.name} {name} {state} {wait} {call}")
    return "\n".join(lines)


class Server:
    """The running server. Its log is kept in `directory`/log until `remove`."""

    def __init__(self, flags=(), binary=None):
        self.binary = binary or os.environ["KAURI"]
        self.flags = [*flags, *os.environ.get("KAURI_FLAGS", "").split()]
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="kauri-"))
        self.log = self.directory / "log"
        self.process = None
        self.port = None
        self.is_ready = False
        # A suite that fails leaves no server behind.
        atexit.register(lambda: self.process and self.process.kill())
        self.start()

    @property
    def uri(self):
        return f"mongodb://127.0.0.1:{self.port}/"

    @property
    def socket(self):
        return self.directory / f"mongodb-{self.port}.sock"

    def address(self, transport):
        """The connection string, without options, by which libkauri has this transport."""
        file = urllib.parse.quote(str(self.socket), safe="")
        return {
            "tcp": self.uri,
            "unix": f"mongodb://{file}/",
            "sharedMemory": f"mongodb://{file}/",
            "rdma": f"mongodb://{RDMA_ADDRESS}:{self.port}/",
        }[transport]

    def spawn(self):
        """Starts the process and returns it at once."""
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        self.port = free_port()
        addresses = ["127.0.0.1"] + ([RDMA_ADDRESS] if RDMA_ADDRESS else [])
        return subprocess.Popen(
            [self.binary, "serve", "--port", str(self.port), "--bind_ip", ",".join(addresses)]
            + (["--rdma", "require"] if RDMA_ADDRESS else [])
            + ["--dbpath", str(data), "--unixSocketPrefix", str(self.directory)]
            + self.flags,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def start(self):
        """Starts the process and returns when it accepts connections."""
        self.is_ready = False
        self.process = self.spawn()
        ready = threading.Event()
        threading.Thread(target=self._copy_log, args=(self.process.stdout, ready), daemon=True).start()
        if not ready.wait(READY_SECONDS_MAX) or not self.is_ready:
            outcome = self.outcome()
            self.kill()
            raise RuntimeError(f"the server did not start: {outcome}\n{self.log_end()}")

    def _copy_log(self, stream, ready):
        with open(self.log, "ab") as log:
            for line in stream:
                log.write(line)
                log.flush()
                if b"Waiting for connections" in line:
                    self.is_ready = True
                    ready.set()
        ready.set()

    def outcome(self):
        """How the process has ended, or what each of its threads waits for."""
        try:
            # What closes its output is about to end.
            return f"it ended with {self.process.wait(1)}"
        except subprocess.TimeoutExpired:
            return "it goes on, with these threads:\n" + threads(self.process.pid)

    def log_end(self):
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""

    def kill(self):
        """kill -9, and waits until the process is gone."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def remove(self):
        if self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def main(arguments):
    split = arguments.index("--")
    server = Server(arguments[:split])
    try:
        environment = {**os.environ, "KAURI_URI": server.uri, "KAURI_SOCKET": str(server.socket)}
        status = subprocess.call(arguments[split + 1 :], env=environment)
        # The command may have shut the server down itself.
        ended = server.process.poll()
        if ended is None:
            ended = server.stop()
        if ended != 0:
            print(f"the server ended with {ended}:\n{server.log_end()}", file=sys.stderr)
            return 1
        return status
    finally:
        server.remove()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
