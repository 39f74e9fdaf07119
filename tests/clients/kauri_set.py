"""A replica set of three Kauri servers for a test, on free loopback ports.

As a program: kauri_set.py [--empty COUNT] [SERVER FLAG…] -- COMMAND…
runs COMMAND with KAURI_URI (the hosts and the set's name) in its environment, stops the members and returns COMMAND's
status. It fails if a member did not shut down cleanly. With --empty there are so many servers that are no set yet:
KAURI_URI is the first one, and KAURI_HOSTS has all, separated by commas.
"""

import concurrent.futures
import os
import signal
import subprocess
import sys

from kauri_server import STOP_SECONDS_MAX, Server, command

NAME = "rs0"
# Nobody waits longer than this for a set to be ready.
NEWS_MILLIS_MAX = 10_000
ROLES = ("isWritablePrimary", "secondary")


def until(port, is_so):
    """The `hello` of the server at this port for which `is_so`. The server tells each change of its role."""
    waits, reply = {}, None
    while True:
        reply = command(port, {"hello": 1, **waits, "$db": "admin"})
        if reply["ok"] != 1:
            raise RuntimeError(f"hello: {reply}")
        if is_so(reply):
            return reply
        if waits.get("topologyVersion") == reply["topologyVersion"]:
            raise RuntimeError(f"no news of the set for {NEWS_MILLIS_MAX} ms: {reply}")
        waits = {"topologyVersion": reply["topologyVersion"], "maxAwaitTimeMS": NEWS_MILLIS_MAX}


class ReplicaSet:
    """The running set: `servers`, all with the same flags."""

    def __init__(self, flags=(), count=3, is_initiated=True):
        flags = ["--replSet", NAME, "--maxSizeGB", "2", *flags]
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            self.servers = list(pool.map(lambda _: Server(flags), range(count)))
        if is_initiated:
            self.initiate()

    @property
    def hosts(self):
        return [f"127.0.0.1:{server.port}" for server in self.servers]

    @property
    def uri(self):
        return f"mongodb://{','.join(self.hosts)}/?replicaSet={NAME}"

    @property
    def primary(self):
        """The server that is the primary now."""
        [name] = {command(server.port, {"hello": 1, "$db": "admin"})["primary"] for server in self.servers}
        return self.servers[self.hosts.index(name)]

    def initiate(self):
        """Returns when the set has a primary, all others are secondaries, and all know the primary."""
        members = [{"_id": n, "host": host} for n, host in enumerate(self.hosts)]
        # A busy machine alone is no reason for an election.
        config = {"_id": NAME, "members": members, "settings": {"electionTimeoutMillis": 5000}}
        reply = command(self.servers[0].port, {"replSetInitiate": config, "$db": "admin"})
        if reply["ok"] != 1:
            raise RuntimeError(f"replSetInitiate: {reply}")
        for server in self.servers:
            until(server.port, lambda hello: "primary" in hello and any(hello.get(role) for role in ROLES))

    def stop(self):
        """SIGTERM to all; fails if one of them does not end in order."""
        for server in self.servers:
            server.process.send_signal(signal.SIGTERM)
        for number, server in enumerate(self.servers):
            try:
                ended = server.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                ended = server.outcome()
            if ended != 0:
                raise RuntimeError(f"member {number} ended with {ended}:\n{server.log_end()}")

    def remove(self):
        for server in self.servers:
            server.remove()


def main(arguments):
    split = arguments.index("--")
    flags, command_line = arguments[:split], arguments[split + 1 :]
    if flags[:1] == ["--empty"]:
        members = ReplicaSet(flags[2:], int(flags[1]), is_initiated=False)
        uri = f"{members.servers[0].uri}?directConnection=true"
    else:
        members = ReplicaSet(flags)
        uri = members.uri
    try:
        environment = {**os.environ, "KAURI_URI": uri, "KAURI_HOSTS": ",".join(members.hosts)}
        status = subprocess.call(command_line, env=environment)
        members.stop()
        return status
    finally:
        members.remove()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
