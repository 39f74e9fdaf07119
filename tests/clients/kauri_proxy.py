"""A `kauri proxy` before a Kauri server, through shared memory and nothing else; over RDMA and nothing
else if KAURI_RDMA_ADDRESS is set.

As a program, under kauri_server.py: kauri_proxy.py [--unix] -- COMMAND…
runs COMMAND with the proxy in KAURI_URI, ends the proxy and returns COMMAND's status; it fails if the
proxy did not end in order, or if COMMAND's requests did not go through it.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.parse

from kauri_server import RDMA_ADDRESS, command, free_port

STOP_SECONDS_MAX = 60


class Proxy:
    """The running proxy. Its log is kept in `directory`/log until `stop`."""

    def __init__(self, server):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="kauri-proxy-"))
        self.port = free_port()
        self.process = subprocess.Popen(
            [os.environ["KAURI"], "proxy", server, "--port", str(self.port)]
            + ["--unixSocketPrefix", str(self.directory)],
            stdout=subprocess.PIPE,
        )
        with open(self.directory / "log", "wb") as log:
            for line in self.process.stdout:
                log.write(line)
                if b"Waiting for connections" in line:
                    break
            else:
                raise RuntimeError("the proxy did not start")
        # What it logs from here on nobody needs.
        self.drain = subprocess.Popen(["cat"], stdin=self.process.stdout, stdout=subprocess.DEVNULL)
        self.process.stdout.close()

    def uri(self, unix=False):
        socket = urllib.parse.quote(str(self.directory / f"mongodb-{self.port}.sock"), safe="")
        return f"mongodb://{socket}/" if unix else f"mongodb://127.0.0.1:{self.port}/"

    def stop(self):
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS_MAX)
        finally:
            self.process.kill()
            self.drain.wait()
            shutil.rmtree(self.directory, ignore_errors=True)


def fast_uri():
    """What the proxy is told."""
    if RDMA_ADDRESS:
        port = os.environ["KAURI_URI"].rstrip("/").rpartition(":")[2]
        return f"mongodb://{RDMA_ADDRESS}:{port}/?rdma=require"
    socket = urllib.parse.quote(os.environ["KAURI_SOCKET"], safe="")
    return f"mongodb://{socket}/?sharedMemory=require"


def look():
    """The server's counters."""
    port = urllib.parse.urlsplit(os.environ["KAURI_URI"]).port
    status = command(port, {"serverStatus": 1, "$db": "admin"})
    fast = status["rdma" if RDMA_ADDRESS else "sharedMemory"]
    names = ["offered", "switched", "withdrawn", "refused", "failed", "framesIn", "framesOut"]
    return {"requests": status["network"]["numRequests"], **{name: fast[name] for name in names}}


def went_through(before, after):
    """Whether every request of the proxy's sessions but their handshakes was a frame at least."""
    spent = {name: after[name] - before[name] for name in after}
    # A session's hello and its request for the upgrade, and our own second look.
    expected = spent["requests"] - 2 * spent["offered"] - 1
    print(f"{os.environ['KAURI_URI']}: {expected} requests, {spent}", file=sys.stderr)
    return (
        spent["switched"] == spent["offered"] > 0
        and spent["withdrawn"] == spent["refused"] == spent["failed"] == 0
        and spent["framesIn"] >= expected > 0
        and spent["framesOut"] > 0
    )


def main(arguments):
    split = arguments.index("--")
    before = look()
    proxy = Proxy(fast_uri())
    try:
        uri = proxy.uri("--unix" in arguments[:split])
        status = subprocess.call(arguments[split + 1 :], env={**os.environ, "KAURI_URI": uri})
    finally:
        ended = proxy.stop()
    if ended != 0:
        print(f"the proxy ended with {ended}", file=sys.stderr)
        return 1
    try:
        after = look()
    except ConnectionError:
        # COMMAND has shut the server down.
        return status
    return status if went_through(before, after) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
