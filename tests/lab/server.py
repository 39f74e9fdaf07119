"""A server on persistent memory: its data after kills during writes, and after a clean shutdown."""

import os
import sys

import lives
from pymongo import MongoClient

DEATHS = 4 if os.environ.get("LAB_BRIEF") else 8


class Writes(lives.Writes):
    """Its writers don't wait long for a server that is dead."""

    def connect(self):
        self.client = MongoClient(self.server.uri, serverSelectionTimeoutMS=2_000)
        self.db = self.client.life



def main():
    life = Writes("lab")
    directory = str(life.server.directory)
    assert directory.startswith(os.environ["DAX"] + "/"), directory
    medium = life.client.admin.command("serverStatus")["pmlog"]["medium"]
    assert medium["mapSync"] is True, medium
    print("server:", medium["description"], flush=True)
    while life.under_way < DEATHS:
        assert life.deaths < 4 * DEATHS, f"only {life.under_way} of {life.deaths} deaths count"
        life.cycle()
    assert life.server.stop() == 0, life.server.log_end()
    life.rise()
    life.check()
    life.server.remove()
    print(f"server: {life.deaths} deaths, {life.under_way} of them among writes")


if __name__ == "__main__":
    sys.exit(main())
