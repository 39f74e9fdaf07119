"""The requests of percona's mongodb_exporter to members of a replica set (KAURI_URI): those of collectors.py to the
primary, and what differs to a secondary. The exporter connects to each member by itself. The last line is the number
of tests."""

import datetime
import os

import collectors
from collectors import DOCUMENTS, figures
from pymongo import MongoClient

STATES = {"PRIMARY": 1, "SECONDARY": 2}


def members():
    """The members' addresses, the primary first."""
    with MongoClient(os.environ["KAURI_URI"]) as client:
        hello = client.admin.command("hello")
    return [hello["primary"], *(host for host in hello["hosts"] if host != hello["primary"])]


class Member:
    """What holds of each member. `me`: its address; `state`: the name of its state."""

    def check_set(self, hello):
        self.assertEqual(hello["setName"], "rs0")
        self.assertEqual(hello["me"], self.me)
        self.assertEqual(len(hello["hosts"]), 3)

    def check_status(self, status):
        self.assertEqual((status["set"], status["myState"]), ("rs0", STATES[self.state]))
        for name in ("date",):
            self.assertIsInstance(status[name], datetime.datetime)
        found = figures(status)
        many = 2**62
        self.expect(
            found,
            term=(1, 1000),
            heartbeatIntervalMillis=(1, 60_000),
            majorityVoteCount=2,
            writeMajorityCount=2,
            votingMembersCount=3,
            writableVotingMembersCount=3,
        )
        for name in ("lastCommittedOpTime", "appliedOpTime", "durableOpTime", "readConcernMajorityOpTime"):
            self.assertGreater(status["optimes"][name]["ts"].time, 0, name)
        for name in ("lastCommittedWallTime", "lastAppliedWallTime", "lastDurableWallTime"):
            self.assertIsInstance(status["optimes"][name], datetime.datetime, name)
        self.assertEqual(sorted(member["name"] for member in status["members"]), sorted(members()))
        for member in status["members"]:
            is_me = member["name"] == self.me
            self.assertEqual(member.get("self", False), is_me)
            self.assertEqual(member["state"], STATES[member["stateStr"]])
            self.assertEqual(member["stateStr"] == "PRIMARY", member["name"] == members()[0])
            self.expect(member, health=1.0, uptime=(0, many), configVersion=(1, many), configTerm=(1, many))
            # The lag of a member is the difference of these.
            for name in ("optimeDate", "lastAppliedWallTime", "lastDurableWallTime"):
                self.assertIsInstance(member[name], datetime.datetime, name)
            if not is_me:
                self.expect(member, pingMs=(0, 60_000))
                for name in ("lastHeartbeat", "lastHeartbeatRecv", "optimeDurableDate"):
                    self.assertIsInstance(member[name], datetime.datetime, name)
            if member["stateStr"] == "PRIMARY":
                self.assertIsInstance(member["electionDate"], datetime.datetime)
                self.assertEqual(member["syncSourceHost"], "")
            else:
                self.assertEqual(member["syncSourceHost"], members()[0])

    def test_replication(self):
        self.check_status(self.admin.command("replSetGetStatus", "1"))
        config = self.admin.command("replSetGetConfig", "1")["config"]
        self.expect(
            figures(config),
            version=(1, 2**62),
            protocolVersion=1,
            settings__electionTimeoutMillis=5000,
            settings__heartbeatIntervalMillis=(1, 60_000),
            settings__heartbeatTimeoutSecs=10,
            settings__chainingAllowed=True,
        )
        self.assertEqual(sorted(member["host"] for member in config["members"]), sorted(members()))
        for number, member in enumerate(config["members"]):
            self.expect(member, _id=number, votes=1, priority=1.0, hidden=False, arbiterOnly=False, buildIndexes=True)
            self.expect(member, secondaryDelaySecs=0)
            self.assertEqual(member["tags"], {})

    def check_sample(self, data):
        self.check_status(data["replSetGetStatus"])
        repl = data["serverStatus"]["repl"]
        self.check_set(repl)
        self.assertEqual(repl["primary"], members()[0])
        self.assertEqual(repl["isWritablePrimary"], self.state == "PRIMARY")
        self.assertEqual(repl["secondary"], self.state == "SECONDARY")
        self.assertIsInstance(repl["lastWrite"]["lastWriteDate"], datetime.datetime)


class Primary(Member, collectors.Collectors):
    state = "PRIMARY"

    @staticmethod
    def uri():
        return f"mongodb://{members()[0]}/"

    @classmethod
    def setUpClass(cls):
        cls.me = members()[0]
        super().setUpClass()

    def test_diagnosticdata(self):
        super().test_diagnosticdata()
        self.check_sample(self.admin.command("getDiagnosticData", "1")["data"])


class Secondary(Member, collectors.Figures):
    state = "SECONDARY"

    @classmethod
    def setUpClass(cls):
        cls.me = members()[1]
        with MongoClient(os.environ["KAURI_URI"]) as client, client.start_session() as session:
            db = client["other"]
            documents = [{"_id": n, "n": n % 10, "s": "x" * 50} for n in range(DOCUMENTS)]
            db.orders.insert_many(documents, session=session)
            db.orders.create_index("n", session=session)
            # What the secondary answers from here on comes after these writes.
            time = session.operation_time
        cls.client = MongoClient(f"mongodb://{cls.me}/?readPreference=primaryPreferred", directConnection=True)
        cls.admin, cls.db = cls.client.admin, cls.client["other"]
        cls.db.command("find", "orders", readConcern={"afterClusterTime": time})
        assert len(list(cls.db.orders.find({"n": 3}))) == DOCUMENTS // 10

    @classmethod
    def tearDownClass(cls):
        cls.client.close()

    def test_general(self):
        self.admin.command("ping")
        hello = self.admin.command("isMaster")
        self.assertFalse(hello["ismaster"])
        self.assertTrue(hello["secondary"])
        self.assertNotIn("arbiterOnly", hello)
        self.check_set(hello)
        self.assertEqual(hello["primary"], members()[0])

    def test_diagnosticdata(self):
        data = self.admin.command("getDiagnosticData", "1")["data"]
        self.expect(
            figures(data),
            serverStatus__opcounters__insert=0,
            serverStatus__opcounters__query=(1, 1000),
            serverStatus__metrics__document__returned=(50, 2**62),
            serverStatus__connections__current=(1, 1000),
            serverStatus__mem__resident=(1, 1_000_000),
            systemMetrics__cpu__num_cpus=(1, 100_000),
        )
        self.check_sample(data)

    def test_dbstats(self):
        names = [d["name"] for d in self.admin.command("listDatabases", nameOnly=True)["databases"]]
        self.assertIn("other", names)
        for name in names:
            self.assertEqual(self.client[name].command("dbStats", 1, scale=1)["db"], name)
        found = figures(self.db.command("dbStats", 1, scale=1, freeStorage=1))
        size = DOCUMENTS * 50
        self.expect(found, collections=1, indexes=2, objects=DOCUMENTS, dataSize=(size, size * 100))

    def test_collstats(self):
        stages = [
            {"$collStats": {"latencyStats": {"histograms": False}, "storageStats": {"scale": 1}}},
            {"$project": {"storageStats.wiredTiger": 0, "storageStats.indexDetails": 0}},
        ]
        [stats] = self.db.orders.aggregate(stages)
        self.expect(
            figures(stats),
            storageStats__count=DOCUMENTS,
            storageStats__nindexes=2,
            storageStats__indexSizes__n_1=(1, 2**62),
            latencyStats__reads__ops=(1, 1000),
            latencyStats__writes__ops=0,
        )

    def test_indexstats(self):
        found = {index["name"]: index for index in self.db.orders.aggregate([{"$indexStats": {}}])}
        # Each member counts its own.
        uses = {name: index["accesses"]["ops"] for name, index in found.items()}
        self.assertEqual(uses, {"_id_": 0, "n_1": 1})

    def test_topmetrics(self):
        found = figures(self.admin.command("top", "1")["totals"]["other.orders"])
        self.expect(found, queries__count=(1, 1000), insert__count=0, update__count=0, total__time=(1, 2**62))

    def test_currentopmetrics(self):
        reply = self.admin.command("currentOp", True)
        mine = [op for op in reply["inprog"] if op.get("command", {}).get("currentOp")]
        self.assertEqual(len(mine), 1)

    def test_profile(self):
        self.assertEqual(self.db["system.profile"].count_documents({}), 0)

    def test_fcv(self):
        reply = self.admin.command("getParameter", 1, featureCompatibilityVersion=1)
        self.assertEqual(reply["featureCompatibilityVersion"]["version"], "8.0")

    def test_pbm(self):
        self.assertIsNone(self.admin["pbmConfig"].find_one({}))


if __name__ == "__main__":
    collectors.main()
