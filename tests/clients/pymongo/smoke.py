"""pymongo against a running server (KAURI_URI): the operations that a new application uses first.

Each test has its own database. The last line is the number of tests.
"""

import datetime
import os
import re
import sys
import unittest

import bson
import gridfs
import pymongo
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from pymongo import ASCENDING, DESCENDING, DeleteOne, InsertOne, MongoClient, UpdateOne
from pymongo.errors import (
    BulkWriteError,
    CollectionInvalid,
    DocumentTooLarge,
    DuplicateKeyError,
    ExecutionTimeout,
    OperationFailure,
    WriteError,
)

URI = os.environ["KAURI_URI"]


class Case(unittest.TestCase):
    def setUp(self):
        self.client = MongoClient(URI, serverSelectionTimeoutMS=10_000)
        self.db = self.client["smoke_" + self._testMethodName]
        self.client.drop_database(self.db.name)
        self.c = self.db.c

    def tearDown(self):
        self.client.drop_database(self.db.name)
        self.client.close()

    def code(self, expected, f, *args, **kwargs):
        with self.assertRaises(OperationFailure) as caught:
            f(*args, **kwargs)
        self.assertEqual(caught.exception.code, expected, caught.exception)
        return caught.exception


class Connect(Case):
    def test_hello(self):
        hello = self.client.admin.command("hello")
        self.assertTrue(hello["isWritablePrimary"])
        self.assertEqual((hello["minWireVersion"], hello["maxWireVersion"]), (0, 25))
        self.assertEqual(hello["maxBsonObjectSize"], 16 * 1024 * 1024)

    def test_build_info(self):
        info = self.client.server_info()
        self.assertTrue(info["version"].startswith("8.0."))
        self.assertEqual(info["versionArray"][:2], [8, 0])

    def test_unknown_command(self):
        self.code(59, self.db.command, "noSuchCommand")

    def test_server_status(self):
        before = self.client.admin.command("serverStatus")["opcounters"]["insert"]
        self.c.insert_one({})
        after = self.client.admin.command("serverStatus")["opcounters"]["insert"]
        self.assertGreaterEqual(after, before + 1)

    def test_compressors(self):
        for compressor in ["zlib"]:
            with MongoClient(URI, compressors=compressor) as client:
                c = client[self.db.name].c
                c.insert_one({"_id": compressor, "v": "x" * 10_000})
                self.assertEqual(len(c.find_one({"_id": compressor})["v"]), 10_000)

    def test_sessions(self):
        with self.client.start_session() as s:
            self.c.insert_one({"_id": 1}, session=s)
            self.assertEqual(self.c.find_one({}, session=s), {"_id": 1})

    def test_many_clients(self):
        clients = [MongoClient(URI) for _ in range(50)]
        for i, client in enumerate(clients):
            client[self.db.name].c.insert_one({"_id": i})
        self.assertEqual(self.c.count_documents({}), 50)
        for client in clients:
            client.close()


class Types(Case):
    def test_every_type(self):
        doc = {
            "_id": ObjectId(),
            "double": 1.5,
            "string": "žluťoučký 🐎 \x00 end",
            "object": {"a": {"b": {}}},
            "array": [1, [2, []], {"x": None}],
            "binary": Binary(b"\x00\x01", 0),
            "uuid": Binary(bytes(16), 4),
            "true": True,
            "date": datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
            "null": None,
            "regex": Regex("^a.*b$", "im"),
            "code": bson.Code("f()"),
            "int": 1,
            "timestamp": Timestamp(5, 6),
            "long": Int64(2**40),
            "decimal": Decimal128("1.10"),
            "min": MinKey(),
            "max": MaxKey(),
        }
        self.c.insert_one(doc)
        raw = self.db.get_collection(
            "c", bson.codec_options.CodecOptions(document_class=bson.raw_bson.RawBSONDocument)
        )
        self.assertEqual(raw.find_one().raw, bson.encode(doc))

    def test_type_operator(self):
        self.c.insert_many([{"v": 1}, {"v": Int64(1)}, {"v": 1.0}, {"v": "1"}, {"v": [1]}])
        self.assertEqual(self.c.count_documents({"v": {"$type": "number"}}), 4)
        self.assertEqual(self.c.count_documents({"v": {"$type": "array"}}), 1)

    def test_too_large(self):
        with self.assertRaises((DocumentTooLarge, WriteError, OperationFailure)):
            self.c.insert_one({"v": "x" * (16 * 1024 * 1024)})

    def test_sixteen_megabytes(self):
        self.c.insert_one({"_id": 1, "v": "x" * (16 * 1024 * 1024 - 100)})
        self.assertEqual(len(self.c.find_one()["v"]), 16 * 1024 * 1024 - 100)


class Write(Case):
    def test_insert_one_makes_id(self):
        self.assertIsInstance(self.c.insert_one({"a": 1}).inserted_id, ObjectId)

    def test_insert_many(self):
        self.assertEqual(len(self.c.insert_many({"n": i} for i in range(5000)).inserted_ids), 5000)
        self.assertEqual(self.c.count_documents({}), 5000)

    def test_duplicate_key(self):
        self.c.insert_one({"_id": 1})
        with self.assertRaises(DuplicateKeyError) as caught:
            self.c.insert_one({"_id": 1})
        self.assertEqual(caught.exception.code, 11000)
        self.assertEqual(caught.exception.details["keyValue"], {"_id": 1})

    def test_ordered_stops_unordered_goes_on(self):
        docs = [{"_id": 1}, {"_id": 1}, {"_id": 2}]
        for ordered, count in [(True, 1), (False, 2)]:
            self.c.drop()
            with self.assertRaises(BulkWriteError) as caught:
                self.c.insert_many([dict(d) for d in docs], ordered=ordered)
            self.assertEqual(caught.exception.details["nInserted"], count)
            self.assertEqual(caught.exception.details["writeErrors"][0]["index"], 1)
            self.assertEqual(self.c.count_documents({}), count)

    def test_update_operators(self):
        self.c.insert_one({"_id": 1, "n": 1, "a": [3, 1], "old": 1, "gone": 1, "low": 5})
        self.c.update_one(
            {"_id": 1},
            {
                "$set": {"s.t": 1},
                "$inc": {"n": 2},
                "$push": {"a": {"$each": [2], "$sort": 1}},
                "$rename": {"old": "new"},
                "$unset": {"gone": ""},
                "$min": {"low": 3},
            },
        )
        self.assertEqual(
            self.c.find_one(), {"_id": 1, "n": 3, "a": [1, 2, 3], "s": {"t": 1}, "new": 1, "low": 3}
        )

    def test_update_counts(self):
        self.c.insert_many([{"n": i} for i in range(10)])
        r = self.c.update_many({"n": {"$gte": 5}}, {"$set": {"n": 5}})
        self.assertEqual((r.matched_count, r.modified_count), (5, 4))

    def test_upsert(self):
        r = self.c.update_one({"k": 1}, {"$setOnInsert": {"x": 2}}, upsert=True)
        self.assertEqual(r.matched_count, 0)
        self.assertEqual(self.c.find_one({"_id": r.upserted_id}, {"_id": 0}), {"k": 1, "x": 2})

    def test_array_filters(self):
        self.c.insert_one({"_id": 1, "a": [{"k": 1, "v": 0}, {"k": 2, "v": 0}]})
        self.c.update_one({}, {"$set": {"a.$[e].v": 9}}, array_filters=[{"e.k": 2}])
        self.assertEqual([e["v"] for e in self.c.find_one()["a"]], [0, 9])

    def test_positional(self):
        self.c.insert_one({"_id": 1, "a": [1, 5, 9]})
        self.c.update_one({"a": {"$gt": 4}}, {"$set": {"a.$": 0}})
        self.assertEqual(self.c.find_one()["a"], [1, 0, 9])

    def test_pipeline_update(self):
        self.c.insert_one({"_id": 1, "a": 2, "b": 3})
        self.c.update_one({}, [{"$set": {"sum": {"$add": ["$a", "$b"]}}}, {"$unset": "a"}])
        self.assertEqual(self.c.find_one(), {"_id": 1, "b": 3, "sum": 5})

    def test_replace(self):
        self.c.insert_one({"_id": 1, "a": 1})
        self.c.replace_one({"_id": 1}, {"b": 2})
        self.assertEqual(self.c.find_one(), {"_id": 1, "b": 2})
        self.code(66, self.c.replace_one, {"_id": 1}, {"_id": 2})

    def test_delete(self):
        self.c.insert_many([{"n": i} for i in range(10)])
        self.assertEqual(self.c.delete_one({}).deleted_count, 1)
        self.assertEqual(self.c.delete_many({"n": {"$lt": 5}}).deleted_count, 4)
        self.assertEqual(self.c.delete_many({}).deleted_count, 5)

    def test_find_and_modify(self):
        self.c.insert_many([{"_id": i, "n": i} for i in range(3)])
        self.assertEqual(self.c.find_one_and_update({"_id": 1}, {"$inc": {"n": 5}})["n"], 1)
        after = pymongo.ReturnDocument.AFTER
        got = self.c.find_one_and_replace({"_id": 1}, {"r": 1}, return_document=after)
        self.assertEqual(got, {"_id": 1, "r": 1})
        self.assertEqual(self.c.find_one_and_delete({}, sort=[("_id", -1)])["_id"], 2)

    def test_bulk_write(self):
        r = self.c.bulk_write(
            [InsertOne({"_id": 1}), InsertOne({"_id": 2})]
            + [UpdateOne({"_id": 1}, {"$set": {"a": 1}}), UpdateOne({"_id": 3}, {"$set": {"a": 1}}, True)]
            + [DeleteOne({"_id": 2})]
        )
        self.assertEqual((r.inserted_count, r.modified_count, r.deleted_count), (2, 1, 1))
        self.assertEqual(r.upserted_ids, {3: 3})

    def test_write_concerns(self):
        for concern in [{"w": 1, "j": True}, {"w": "majority"}, {"w": 0}]:
            self.db.get_collection(
                "c", write_concern=pymongo.WriteConcern(**concern)
            ).insert_one({"concern": str(concern)})
        # The unacknowledged write is on another connection than the count.
        for _ in range(1000):
            if self.c.count_documents({}) == 3:
                return
        self.fail("an unacknowledged write did not arrive")


class Read(Case):
    def test_cursor_batches(self):
        self.c.insert_many({"_id": i, "pad": "x" * 500} for i in range(3000))
        got = [d["_id"] for d in self.c.find({}, {"_id": 1}).sort("_id", 1).batch_size(7)]
        self.assertEqual(got, list(range(3000)))

    def test_kill_cursor(self):
        self.c.insert_many({"_id": i} for i in range(300))
        cursor = self.c.find().batch_size(2)
        next(cursor)
        alive = cursor.cursor_id
        cursor.close()
        self.code(43, self.db.command, {"getMore": Int64(alive), "collection": "c"})

    def test_operators(self):
        self.c.insert_many(
            [{"_id": i, "n": i, "t": ["a", "b"][: i % 3], "s": f"item{i}"} for i in range(20)]
        )
        for query, count in [
            ({"n": {"$in": [1, 2, 99]}}, 2),
            ({"n": {"$nin": [1, 2, 99]}}, 18),
            ({"n": {"$mod": [5, 0]}}, 4),
            ({"t": {"$all": ["a", "b"]}}, 6),
            ({"t": {"$size": 0}}, 7),
            ({"t": {"$elemMatch": {"$eq": "b"}}}, 6),
            ({"s": re.compile("^ITEM1", re.I)}, 11),
            ({"$or": [{"n": 3}, {"s": "item4"}]}, 2),
            ({"$nor": [{"n": {"$lt": 18}}]}, 2),
            ({"n": {"$not": {"$gt": 3}}}, 4),
            ({"missing": None}, 20),
            ({"missing": {"$exists": True}}, 0),
            ({"$expr": {"$eq": [{"$size": "$t"}, 2]}}, 6),
            ({"$jsonSchema": {"properties": {"n": {"maximum": 3}}}}, 4),
        ]:
            with self.subTest(query=query):
                self.assertEqual(self.c.count_documents(query), count)

    def test_projection(self):
        self.c.insert_one({"_id": 1, "a": [{"x": 1, "y": 2}, {"x": 3, "y": 4}], "b": 1})
        self.assertEqual(self.c.find_one({}, {"a.x": 1, "_id": 0}), {"a": [{"x": 1}, {"x": 3}]})
        self.assertEqual(self.c.find_one({}, {"a": {"$slice": -1}, "b": 0})["a"], [{"x": 3, "y": 4}])
        self.assertEqual(self.c.find_one({}, {"s": {"$add": ["$b", 1]}}), {"_id": 1, "s": 2})

    def test_sort_skip_limit(self):
        self.c.insert_many([{"a": i % 3, "b": i} for i in range(10)])
        got = self.c.find().sort([("a", ASCENDING), ("b", DESCENDING)]).skip(1).limit(4)
        self.assertEqual([(d["a"], d["b"]) for d in got], [(0, 6), (0, 3), (0, 0), (1, 7)])

    def test_distinct_and_counts(self):
        self.c.insert_many([{"v": [1, 2]}, {"v": 2}, {"v": "x"}])
        self.assertEqual(self.c.distinct("v"), [1, 2, "x"])
        self.assertEqual(self.c.distinct("v", {"v": 2}), [1, 2])
        self.assertEqual(self.c.estimated_document_count(), 3)

    def test_errors(self):
        self.code(2, self.c.find_one, {"a": {"$noSuchOperator": 1}})
        self.code(51091, self.c.find_one, {"a": {"$regex": "("}})

    def test_max_time(self):
        self.c.insert_many({"n": i} for i in range(2000))
        slow = {"$expr": {"$gt": [{"$reduce": {"input": {"$range": [0, 20000]}, "initialValue": 0,
                "in": {"$add": ["$$value", "$$this"]}}}, 0]}}
        with self.assertRaises(ExecutionTimeout):
            self.c.find(slow).max_time_ms(20).to_list()


class Indexes(Case):
    def plan(self, query):
        return str(self.c.find(query).explain()["queryPlanner"]["winningPlan"])

    def test_create_list_drop(self):
        self.assertEqual(self.c.create_index([("a", 1), ("b", -1)]), "a_1_b_-1")
        self.assertEqual(sorted(self.c.index_information()), ["_id_", "a_1_b_-1"])
        self.c.drop_index("a_1_b_-1")
        self.assertEqual(list(self.c.index_information()), ["_id_"])
        self.code(27, self.c.drop_index, "a_1_b_-1")

    def test_used_by_find(self):
        self.c.insert_many({"a": i % 100, "b": i} for i in range(1000))
        self.assertIn("COLLSCAN", self.plan({"a": 5}))
        self.c.create_index("a")
        self.assertIn("IXSCAN", self.plan({"a": 5}))
        self.assertEqual(self.c.count_documents({"a": 5}), 10)
        stats = self.c.find({"a": 5}).explain()["executionStats"]
        self.assertEqual((stats["nReturned"], stats["totalDocsExamined"]), (10, 10))

    def test_unique(self):
        self.c.create_index("u", unique=True)
        self.c.insert_one({"u": 1})
        with self.assertRaises(DuplicateKeyError):
            self.c.insert_one({"u": 1})
        with self.assertRaises(DuplicateKeyError):
            self.c.update_one({"u": 2}, {"$set": {"u": 1}}, upsert=True)

    def test_unique_over_duplicates(self):
        self.c.insert_many([{"u": 1}, {"u": 1}])
        self.code(11000, self.c.create_index, "u", unique=True)
        self.assertEqual(list(self.c.index_information()), ["_id_"])

    def test_sparse_and_partial(self):
        self.c.create_index("s", sparse=True, unique=True)
        self.c.create_index("p", unique=True, partialFilterExpression={"on": True})
        self.c.insert_many([{"p": 1}, {"p": 1}, {"p": 1, "on": True, "s": 1}])
        with self.assertRaises(DuplicateKeyError):
            self.c.insert_one({"p": 1, "on": True})

    def test_multikey(self):
        self.c.create_index("tags")
        self.c.insert_many([{"tags": ["a", "b"]}, {"tags": ["b", "c"]}])
        self.assertIn("IXSCAN", self.plan({"tags": "b"}))
        self.assertEqual(self.c.count_documents({"tags": "b"}), 2)

    def test_ttl_is_listed(self):
        self.c.create_index("at", expireAfterSeconds=3600)
        self.assertEqual(self.c.index_information()["at_1"]["expireAfterSeconds"], 3600)

    def test_hint(self):
        self.c.create_index("a")
        self.c.insert_one({"a": 1})
        self.assertEqual(len(self.c.find({}).hint("a_1").to_list()), 1)
        self.code(2, self.c.find({}).hint("none").to_list)

    def test_conflicting_options(self):
        self.c.create_index("a")
        self.code(86, self.c.create_index, "a", unique=True)


class Aggregate(Case):
    def setUp(self):
        super().setUp()
        self.c.insert_many(
            [{"_id": i, "k": "ab"[i % 2], "n": i, "t": [i, i + 1]} for i in range(6)]
        )

    def agg(self, *stages):
        return self.c.aggregate(list(stages)).to_list()

    def test_group(self):
        got = self.agg(
            {"$group": {"_id": "$k", "sum": {"$sum": "$n"}, "avg": {"$avg": "$n"}, "all": {"$push": "$n"}}},
            {"$sort": {"_id": 1}},
        )
        self.assertEqual(got[0], {"_id": "a", "sum": 6, "avg": 2.0, "all": [0, 2, 4]})

    def test_unwind(self):
        got = self.agg({"$unwind": "$t"}, {"$sortByCount": "$t"}, {"$limit": 1})
        self.assertEqual(got[0]["count"], 2)

    def test_reshape(self):
        got = self.agg(
            {"$match": {"n": {"$gt": 3}}},
            {"$addFields": {"m": {"$multiply": ["$n", 2]}}},
            {"$project": {"m": 1, "big": {"$cond": [{"$gt": ["$m", 8]}, "y", "n"]}}},
            {"$sort": {"m": -1}},
        )
        self.assertEqual(got, [{"_id": 5, "m": 10, "big": "y"}, {"_id": 4, "m": 8, "big": "n"}])

    def test_count_skip_limit(self):
        self.assertEqual(self.agg({"$skip": 1}, {"$limit": 3}, {"$count": "n"}), [{"n": 3}])

    def test_replace_root(self):
        got = self.agg({"$match": {"_id": 2}}, {"$replaceRoot": {"newRoot": {"v": "$t"}}})
        self.assertEqual(got, [{"v": [2, 3]}])

    def test_sample(self):
        self.assertEqual(len(self.agg({"$sample": {"size": 4}})), 4)

    def test_unknown_stage(self):
        self.code(40324, self.agg, {"$noSuchStage": {}})

    def test_cursor(self):
        self.db.big.insert_many({"n": i} for i in range(1000))
        self.assertEqual(len(list(self.db.big.aggregate([{"$match": {}}], batchSize=10))), 1000)


class Catalog(Case):
    def test_create_and_list(self):
        self.db.create_collection("x")
        self.db.create_collection("y", capped=True, size=4096, max=3)
        self.assertEqual(sorted(self.db.list_collection_names()), ["x", "y"])
        with self.assertRaises(CollectionInvalid):
            self.db.create_collection("x")

    def test_capped(self):
        c = self.db.create_collection("k", capped=True, size=100_000, max=3)
        c.insert_many({"_id": i} for i in range(10))
        self.assertEqual([d["_id"] for d in c.find()], [7, 8, 9])

    def test_tailable(self):
        c = self.db.create_collection("k", capped=True, size=100_000)
        c.insert_one({"_id": 1})
        cursor = c.find(cursor_type=pymongo.CursorType.TAILABLE)
        self.assertEqual(next(cursor)["_id"], 1)
        c.insert_one({"_id": 2})
        self.assertEqual(next(cursor)["_id"], 2)

    def test_databases(self):
        self.c.insert_one({})
        self.assertIn(self.db.name, self.client.list_database_names())
        self.client.drop_database(self.db.name)
        self.assertNotIn(self.db.name, self.client.list_database_names())

    def test_validator(self):
        self.db.create_collection("v", validator={"n": {"$gt": 0}})
        self.db.v.insert_one({"n": 1})
        with self.assertRaises(WriteError) as caught:
            self.db.v.insert_one({"n": 0})
        self.assertEqual(caught.exception.code, 121)

    def test_gridfs(self):
        data = os.urandom(1_000_000)
        fs = gridfs.GridFS(self.db)
        name = fs.put(data, filename="model")
        self.assertEqual(fs.get(name).read(), data)
        self.assertEqual([f.filename for f in fs.find()], ["model"])
        fs.delete(name)
        self.assertEqual(self.db["fs.chunks"].count_documents({}), 0)


if __name__ == "__main__":
    result = unittest.main(exit=False, argv=sys.argv).result
    if not result.wasSuccessful() or result.skipped:
        sys.exit(1)
    print(result.testsRun)
