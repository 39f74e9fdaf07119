"""The latency that a proxy adds: finds of 1 KB by pymongo over TCP, directly to the server and through a proxy. The
proxy uses shared memory, or RDMA if KAURI_RDMA_ADDRESS is set. Rounds alternate; the figures are medians.

Run under kauri_server.py. The last line is the number of pairs of rounds.
"""

import os
import statistics
import time

from kauri_proxy import Proxy, fast_uri
from pymongo import MongoClient

ROUNDS = 10
FINDS = 500


def median_us(collection):
    took = []
    for _ in range(FINDS):
        began = time.perf_counter_ns()
        found = collection.find_one({"_id": 1})
        took.append(time.perf_counter_ns() - began)
        assert len(found["x"]) == 1000
    return statistics.median(took) / 1000


proxy = Proxy(fast_uri())
try:
    ways = {"direct": os.environ["KAURI_URI"], "proxy": proxy.uri(), "proxy by Unix socket": proxy.uri(unix=True)}
    collections = {name: MongoClient(uri).latency.c for name, uri in ways.items()}
    collections["direct"].insert_one({"_id": 1, "x": "x" * 1000})
    medians = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, collection in collections.items():
            medians[name].append(median_us(collection))
finally:
    ended = proxy.stop()
assert ended == 0, ended
direct = statistics.median(medians["direct"])
for name in ways:
    middle = statistics.median(medians[name])
    print(f"find of 1 KB, {name}: {middle:.0f} us, ratio {middle / direct:.2f}, {middle - direct:+.0f} us")
print(ROUNDS)
