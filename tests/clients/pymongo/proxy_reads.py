"""Reads through `kauri proxy` before a replica set (KAURI_URI), by the read preferences of the proxy and the driver.

A driver sees a set of one member, which is the one that the proxy follows. The last line is the number of checks.
"""

import os

from kauri_proxy import Proxy
from pymongo import MongoClient
from pymongo.errors import ServerSelectionTimeoutError

MODES = ("primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest")
# For what must not be found.
IN_VAIN_MS = 500


def answered_by(uri, mode, selection_ms, written):
    """Whether a secondary has answered a read; None if the driver has found no server."""
    uri = f"{uri}?readPreference={mode}&serverSelectionTimeoutMS={selection_ms}"
    with MongoClient(uri) as client, client.start_session() as session:
        session.advance_operation_time(written)
        try:
            assert client.shop.orders.find_one(session=session) == {"_id": 1}
        except ServerSelectionTimeoutError:
            return None
        hello = client.admin.command("hello", read_preference=client.read_preference)
        assert len(hello["hosts"]) == 1 and hello["me"] == hello["hosts"][0], hello
        return hello["secondary"]


def main():
    with MongoClient(os.environ["KAURI_URI"]) as client, client.start_session() as session:
        client.shop.orders.insert_one({"_id": 1}, session=session)
        written = session.operation_time
    made = 0
    for of_proxy in ("primary", "secondary", "secondaryPreferred"):
        follows_secondary = of_proxy != "primary"
        unfit = ("primary",) if follows_secondary else ("secondary",)
        proxy = Proxy(f"{os.environ['KAURI_URI']}&readPreference={of_proxy}")
        try:
            for mode in MODES:
                is_unfit = mode in unfit
                found = answered_by(proxy.uri(), mode, IN_VAIN_MS if is_unfit else 60_000, written)
                wanted = None if is_unfit else follows_secondary
                assert found == wanted, f"proxy {of_proxy}, driver {mode}: {found}, not {wanted}"
                made += 1
        finally:
            ended = proxy.stop()
        assert ended == 0, ended
    print(made)


if __name__ == "__main__":
    main()
