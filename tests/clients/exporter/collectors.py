"""The requests of percona's mongodb_exporter to a standalone (KAURI_URI): each collector's commands, as it sends them.
replica_set.py has those to a member of a set.

No package registry has the exporter itself. Each test is one collector. The command succeeds, and the figures that
become metrics exist, are numbers and match the test's operations. The last line is the number of tests.
"""

import datetime
import os
import sys
import unittest

from pymongo import MongoClient
from pymongo.errors import OperationFailure

DATABASE = "shop"
DOCUMENTS = 500


def figures(document, prefix=""):
    """The numbers of a reply by their dotted names: what the exporter makes metrics of."""
    found = {}
    for key, value in document.items():
        name = prefix + key
        if isinstance(value, dict):
            found |= figures(value, name + ".")
        elif isinstance(value, bool | int | float):
            found[name] = value
    return found


class Figures(unittest.TestCase):
    def expect(self, found, **wanted):
        """`__` stands for a dot. A value is exact; a pair is a range."""
        for name, value in wanted.items():
            name = name.replace("__", ".")
            self.assertIn(name, found)
            if isinstance(value, tuple):
                low, high = value
                self.assertTrue(low <= found[name] <= high, f"{name}: {found[name]}")
            else:
                self.assertEqual(found[name], value, name)

    def present(self, found, names):
        missing = [name for name in names.split() if name not in found]
        self.assertEqual(missing, [])


class Collectors(Figures):
    @staticmethod
    def uri():
        return os.environ["KAURI_URI"]

    @classmethod
    def setUpClass(cls):
        cls.client = MongoClient(cls.uri(), directConnection=True)
        cls.admin, cls.db = cls.client.admin, cls.client[DATABASE]
        cls.db.orders.insert_many([{"_id": n, "n": n % 10, "s": "x" * 50} for n in range(DOCUMENTS)])
        cls.db.orders.create_index("n")
        cls.db.orders.create_index([("s", -1)])
        cls.db.command("profile", 2)
        cls.begun = datetime.datetime.now(datetime.UTC)
        # 50 documents by an index, 50 changed, one removed.
        assert len(list(cls.db.orders.find({"n": 3}))) == 50
        cls.db.orders.update_many({"n": 1}, {"$set": {"a": 1}})
        cls.db.orders.delete_one({"_id": 3})

    @classmethod
    def tearDownClass(cls):
        cls.db.command("profile", 0)
        cls.client.close()

    def test_general(self):
        self.admin.command("ping")
        info = self.admin.command("buildInfo")
        self.assertRegex(info["version"], r"^8\.0\.")
        self.assertEqual(info["modules"], [])
        hello = self.admin.command("isMaster")
        self.assertTrue(hello["ismaster"])
        self.assertNotIn("arbiterOnly", hello)
        self.check_set(hello)

    def check_set(self, hello):
        self.assertNotIn("setName", hello)

    def test_diagnosticdata(self):
        data = self.admin.command("getDiagnosticData", "1")["data"]
        found = figures(data)
        many = (0, 2**62)
        self.expect(
            found,
            serverStatus__opcounters__insert=DOCUMENTS,
            serverStatus__opcounters__delete=1,
            serverStatus__opcounters__update=1,
            serverStatus__opcounters__query=(1, 1000),
            serverStatus__opcountersRepl__insert=0,
            serverStatus__metrics__document__inserted=DOCUMENTS,
            serverStatus__metrics__document__updated=50,
            serverStatus__metrics__document__deleted=1,
            serverStatus__metrics__document__returned=(50, many[1]),
            serverStatus__metrics__cursor__open__total=(0, 100),
            serverStatus__connections__current=(1, 1000),
            serverStatus__connections__available=(1, many[1]),
            serverStatus__connections__totalCreated=(1, 100_000),
            serverStatus__network__bytesIn=(DOCUMENTS * 50, many[1]),
            serverStatus__network__bytesOut=(50 * 50, many[1]),
            serverStatus__network__numRequests=(6, many[1]),
            serverStatus__mem__bits=64,
            serverStatus__mem__resident=(1, 1_000_000),
            serverStatus__mem__virtual=(1, 1_000_000_000),
            serverStatus__opLatencies__reads__ops=(1, 1000),
            serverStatus__opLatencies__writes__ops=(3, 1000),
            serverStatus__opLatencies__commands__latency=many,
            serverStatus__uptimeMillis=(1, 3_600_000),
            serverStatus__pid=(1, many[1]),
            systemMetrics__cpu__user_ms=(1, many[1]),
            systemMetrics__cpu__num_cpus=(1, 100_000),
            systemMetrics__memory__MemTotal_kb=(1024, many[1]),
            systemMetrics__memory__MemAvailable_kb=(1, many[1]),
        )
        self.present(
            found,
            "serverStatus.asserts.regular serverStatus.asserts.user serverStatus.extra_info.page_faults "
            "serverStatus.globalLock.currentQueue.total serverStatus.globalLock.activeClients.total "
            "serverStatus.metrics.ttl.deletedDocuments serverStatus.metrics.ttl.passes "
            "serverStatus.metrics.cursor.timedOut serverStatus.metrics.operation.writeConflicts "
            "serverStatus.transactions.totalStarted systemMetrics.vmstat.pgmajfault",
        )
        self.assertTrue(data["start"] <= data["end"])
        parsed = self.admin.command("getCmdLineOpts", "1")["parsed"]
        self.assertIsInstance(parsed, dict)

    def test_dbstats(self):
        names = [d["name"] for d in self.admin.command("listDatabases", nameOnly=True)["databases"]]
        self.assertIn(DATABASE, names)
        for name in names:
            self.assertEqual(self.client[name].command("dbStats", 1, scale=1)["db"], name)
        found = figures(self.db.command("dbStats", 1, scale=1, freeStorage=1))
        size = (DOCUMENTS - 1) * 50
        some = (1, 2**62)
        self.expect(
            found,
            # The profiler's collection is one, too.
            collections=2,
            views=0,
            indexes=3,
            objects=(DOCUMENTS - 1, DOCUMENTS + 1000),
            dataSize=(size, size * 100),
            avgObjSize=(50, 10_000),
            storageSize=some,
            freeStorageSize=(0, some[1]),
            indexSize=some,
            indexFreeStorageSize=(0, some[1]),
            totalSize=some,
            totalFreeStorageSize=(0, some[1]),
            scaleFactor=1,
            fsUsedSize=some,
            fsTotalSize=some,
        )

    def test_collstats(self):
        stages = [
            {"$collStats": {"latencyStats": {"histograms": False}, "storageStats": {"scale": 1}}},
            {"$project": {"storageStats.wiredTiger": 0, "storageStats.indexDetails": 0}},
        ]
        [stats] = self.db.orders.aggregate(stages)
        self.assertEqual(stats["ns"], f"{DATABASE}.orders")
        self.assertIsInstance(stats["localTime"], datetime.datetime)
        self.expect(
            figures(stats),
            storageStats__count=DOCUMENTS - 1,
            storageStats__nindexes=3,
            storageStats__capped=False,
            storageStats__size=((DOCUMENTS - 1) * 50, DOCUMENTS * 500),
            storageStats__avgObjSize=(50, 500),
            storageStats__storageSize=(1, 2**62),
            storageStats__totalIndexSize=(1, 2**62),
            storageStats__indexSizes__n_1=(1, 2**62),
            latencyStats__reads__ops=(1, 1000),
            latencyStats__writes__ops=(3, 1000),
            latencyStats__commands__ops=(0, 1000),
            latencyStats__writes__latency=(1, 2**62),
        )

    def test_indexstats(self):
        found = {index["name"]: index for index in self.db.orders.aggregate([{"$indexStats": {}}])}
        uses = {name: index["accesses"]["ops"] for name, index in found.items()}
        # The find and the update used one, the removal the other.
        self.assertEqual(uses, {"_id_": 1, "n_1": 2, "s_-1": 0})
        for index in found.values():
            self.assertIsInstance(index["accesses"]["since"], datetime.datetime)

    def test_topmetrics(self):
        totals = self.admin.command("top", "1")["totals"]
        found = figures(totals[f"{DATABASE}.orders"])
        self.expect(
            found,
            queries__count=(1, 1000),
            insert__count=1,
            update__count=1,
            remove__count=1,
            getmore__count=0,
            total__count=(4, 1000),
            total__time=(1, 2**62),
        )
        self.present(found, "readLock.time readLock.count writeLock.time writeLock.count commands.time insert.time")

    def test_currentopmetrics(self):
        reply = self.admin.command("currentOp", True)
        self.assertNotIn("fsyncLock", reply)
        mine = [op for op in reply["inprog"] if op.get("command", {}).get("currentOp")]
        self.assertEqual(len(mine), 1)
        self.assertEqual(mine[0]["op"], "command")
        self.assertGreaterEqual(mine[0]["microsecs_running"], 0)
        self.present(mine[0], "opid desc ns active")
        slow = self.admin.command(
            "currentOp",
            True,
            active=True,
            op={"$ne": ""},
            ns={"$ne": "", "$not": {"$regex": "^admin.*|^local.*"}},
            microsecs_running={"$exists": True, "$gte": 60_000_000},
        )
        self.assertEqual(slow["inprog"], [])

    def test_profile(self):
        since = {"ts": {"$gte": self.begun - datetime.timedelta(seconds=30)}}
        told = self.db["system.profile"].count_documents({**since, "ns": f"{DATABASE}.orders"})
        self.assertGreaterEqual(told, 3)
        self.assertEqual(self.client.admin["system.profile"].count_documents(since), 0)

    def test_fcv(self):
        reply = self.admin.command("getParameter", 1, featureCompatibilityVersion=1)
        self.assertEqual(reply["featureCompatibilityVersion"]["version"], "8.0")

    def test_replication(self):
        """The collectors replicasetstatus and replicasetconfig."""
        for command in ("replSetGetStatus", "replSetGetConfig"):
            with self.assertRaises(OperationFailure) as refused:
                self.admin.command(command, "1")
            # The exporter has a standalone by this code.
            self.assertEqual(refused.exception.code, 76, command)

    def test_pbm(self):
        # No backup agent has left a configuration.
        self.assertIsNone(self.admin["pbmConfig"].find_one({}))


def main(module="__main__"):
    result = unittest.main(module, exit=False, argv=sys.argv).result
    if not result.wasSuccessful() or result.skipped:
        sys.exit(1)
    print(result.testsRun)


if __name__ == "__main__":
    main()
