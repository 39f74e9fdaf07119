"""Times queries over a collection, an index build, and loading documents. Each result is checked. Prints medians of
the rounds, beside the times of MongoDB 4.0.3 for 300,000 documents on such a machine.
"""

import argparse
import os
import statistics
import time

import pymongo

KEYS = 1000
TAGS = 2
# Milliseconds; the load's is documents a second.
MONGODB = {"count": 88, "$group": 114, "sort": 143, "$unwind": 154, "index build": 320, "load": 250_000}


def documents(count):
    """About 250 bytes each."""
    for n in range(count):
        tags = [f"tag{(n + at) % 100}" for at in range(TAGS)]
        yield {"_id": n, "key": n % KEYS, "value": n * 7919 % count, "price": n % 997 / 4, "tags": tags, "text": "x" * 120}


def cases(collection, count):
    """Name, what is timed, and whether its answer is right."""
    half = count // 2
    group = [{"$group": {"_id": "$key", "average": {"$avg": "$value"}}}]
    unwind = [{"$unwind": "$tags"}, {"$group": {"_id": "$tags", "count": {"$sum": 1}}}]
    top = [{"_id": 0, "value": count - 1 - n} for n in range(10)]

    def build():
        if "value_1" in collection.index_information():
            collection.drop_index("value_1")
        began = time.perf_counter()
        collection.create_index("value")
        return time.perf_counter() - began

    def timed(work, is_right):
        def run():
            began = time.perf_counter()
            answer = work()
            took = time.perf_counter() - began
            assert is_right(answer), answer
            return took

        return run

    return {
        "count": timed(lambda: collection.count_documents({"value": {"$lt": half}}), lambda n: n == half),
        "$group": timed(
            lambda: list(collection.aggregate(group)),
            lambda rows: len(rows) == min(KEYS, count) and all(0 <= row["average"] < count for row in rows),
        ),
        "sort": timed(
            lambda: list(collection.find({}, {"_id": 0, "value": 1}).sort("value", -1).limit(10)),
            lambda rows: [row["value"] for row in rows] == [row["value"] for row in top],
        ),
        "$unwind": timed(
            lambda: list(collection.aggregate(unwind)),
            lambda rows: sum(row["count"] for row in rows) == TAGS * count,
        ),
        "index build": build,
    }


def load(client, count):
    collection = client.speed.c
    collection.drop()
    docs = list(documents(count))
    began = time.perf_counter()
    collection.insert_many(docs, ordered=False)
    took = time.perf_counter() - began
    assert collection.estimated_document_count() == count
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    # `value` must be a permutation for the answers that are expected.
    if args.documents % 7919 == 0 or args.documents < 10 or args.rounds < 1:
        parser.error("--documents takes 10 or more, and no multiple of 7919; --rounds 1 or more")
    client = pymongo.MongoClient(os.environ["KAURI_URI"])
    rates = [args.documents / load(client, args.documents) for _ in range(args.rounds)]
    size = client.speed.command("collStats", "c")["avgObjSize"]
    took = {}
    for _ in range(args.rounds):
        for name, run in cases(client.speed.c, args.documents).items():
            # Without the index, which would answer two of them.
            if name != "index build" and "value_1" in client.speed.c.index_information():
                client.speed.c.drop_index("value_1")
            took.setdefault(name, []).append(run() * 1000)
    print(f"{args.documents} documents of {size:.0f} bytes, medians of {args.rounds} rounds")
    print(f"{'':12}{'Kauri':>12}{'MongoDB':>12}")
    for name, times in took.items():
        print(f"{name:12}{statistics.median(times):9.1f} ms{MONGODB[name]:9d} ms")
    print(f"{'load':12}{statistics.median(rates):10.0f}/s{MONGODB['load']:10d}/s")


if __name__ == "__main__":
    main()
