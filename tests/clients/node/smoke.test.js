// The Node.js driver against a running server (KAURI_URI). Each test has its own database.
"use strict";

const assert = require("node:assert/strict");
const { after, before, describe, test } = require("node:test");
const { Readable } = require("node:stream");
const { pipeline } = require("node:stream/promises");
const {
  BSON,
  Binary,
  Decimal128,
  GridFSBucket,
  Long,
  MaxKey,
  MinKey,
  MongoBulkWriteError,
  MongoClient,
  ObjectId,
  Timestamp,
} = require("mongodb");

const uri = process.env.KAURI_URI;
const client = new MongoClient(uri, { serverSelectionTimeoutMS: 10_000 });
let serial = 0;

/** A test that is given a collection in a database that is dropped afterwards. */
function check(name, body) {
  test(name, async () => {
    const db = client.db(`node_${process.pid}_${serial++}`);
    try {
      await body(db.collection("c"), db);
    } finally {
      await db.dropDatabase();
    }
  });
}

/** Expects `promise` to fail with the server's error `code`. */
async function fails(code, promise) {
  await assert.rejects(promise, (error) => {
    assert.equal(error.code, code, error.message);
    return true;
  });
}

before(() => client.connect());
after(() => client.close());

describe("connection", () => {
  check("hello tells the wire versions", async (_, db) => {
    const hello = await db.command({ hello: 1 });
    assert.equal(hello.isWritablePrimary, true);
    assert.equal(hello.maxWireVersion, 25);
  });

  check("an unknown command is refused", async (_, db) => {
    await fails(59, db.command({ noSuchCommand: 1 }));
  });

  check("a compressed connection carries the same documents", async (_, db) => {
    const zlib = new MongoClient(uri, { compressors: ["zlib"] });
    try {
      const c = zlib.db(db.databaseName).collection("c");
      await c.insertOne({ _id: 1, text: "x".repeat(100_000) });
      assert.equal((await c.findOne({ _id: 1 })).text.length, 100_000);
    } finally {
      await zlib.close();
    }
  });

  check("operations run side by side", async (c) => {
    await Promise.all(Array.from({ length: 200 }, (_, i) => c.insertOne({ _id: i })));
    assert.equal(await c.countDocuments(), 200);
  });

  check("a session is used and ended", async (c) => {
    await client.withSession(async (session) => {
      await c.insertOne({ _id: 1 }, { session });
      assert.deepEqual(await c.findOne({}, { session }), { _id: 1 });
    });
  });
});

describe("documents", () => {
  check("every type comes back byte for byte", async (c) => {
    const doc = {
      _id: new ObjectId(),
      double: new BSON.Double(1.0),
      string: "grüße \u0000",
      object: { nested: {} },
      array: [1, [2]],
      binary: new Binary(Buffer.from([1, 2, 3])),
      bool: true,
      date: new Date(0),
      null: null,
      regex: new BSON.BSONRegExp("^a", "im"),
      int: new BSON.Int32(7),
      long: Long.fromString("9007199254740993"),
      timestamp: new Timestamp({ t: 1, i: 2 }),
      decimal: Decimal128.fromString("0.10"),
      min: new MinKey(),
      max: new MaxKey(),
    };
    await c.insertOne(doc);
    const raw = await c.findOne({}, { raw: true });
    assert.deepEqual(Buffer.from(raw), Buffer.from(BSON.serialize(doc)));
  });

  check("a document of sixteen megabytes is stored, a larger one refused", async (c) => {
    const size = 16 * 1024 * 1024;
    await c.insertOne({ _id: 1, text: "x".repeat(size - 100) });
    assert.equal((await c.findOne({ _id: 1 })).text.length, size - 100);
    await assert.rejects(c.insertOne({ _id: 2, text: "x".repeat(size) }));
  });
});

describe("writes", () => {
  check("insertOne gives an id", async (c) => {
    const { insertedId } = await c.insertOne({ a: 1 });
    assert.ok(insertedId instanceof ObjectId);
  });

  check("insertMany in one call", async (c) => {
    const { insertedCount } = await c.insertMany(Array.from({ length: 3000 }, (_, n) => ({ n })));
    assert.equal(insertedCount, 3000);
    assert.equal(await c.countDocuments(), 3000);
  });

  check("a duplicate key names index and key", async (c) => {
    await c.insertOne({ _id: 1 });
    await assert.rejects(c.insertOne({ _id: 1 }), (error) => {
      assert.equal(error.code, 11000);
      assert.deepEqual(error.keyPattern, { _id: 1 });
      assert.deepEqual(error.keyValue, { _id: 1 });
      return true;
    });
  });

  check("an unordered bulk goes on after an error", async (c) => {
    const operations = [{ _id: 1 }, { _id: 1 }, { _id: 2 }].map((document) => ({
      insertOne: { document },
    }));
    await assert.rejects(c.bulkWrite(operations, { ordered: false }), (error) => {
      assert.ok(error instanceof MongoBulkWriteError);
      assert.equal(error.result.insertedCount, 2);
      return true;
    });
    assert.equal(await c.countDocuments(), 2);
  });

  check("update operators", async (c) => {
    await c.insertOne({ _id: 1, n: 1, list: [1, 2, 3] });
    const result = await c.updateOne(
      { _id: 1 },
      { $inc: { n: 4 }, $pull: { list: { $lt: 2 } }, $set: { "a.b": "x" } },
    );
    assert.equal(result.modifiedCount, 1);
    assert.deepEqual(await c.findOne(), { _id: 1, n: 5, list: [2, 3], a: { b: "x" } });
  });

  check("an upsert tells the id", async (c) => {
    const result = await c.updateOne({ _id: "k" }, { $set: { v: 1 } }, { upsert: true });
    assert.equal(result.upsertedId, "k");
    assert.equal(result.upsertedCount, 1);
  });

  check("array filters and positions", async (c) => {
    await c.insertOne({ _id: 1, a: [1, 5, 9] });
    await c.updateOne({}, { $inc: { "a.$[big]": 1 } }, { arrayFilters: [{ big: { $gt: 4 } }] });
    await c.updateOne({ a: 6 }, { $set: { "a.$": 0 } });
    assert.deepEqual((await c.findOne()).a, [1, 0, 10]);
  });

  check("an update by pipeline", async (c) => {
    await c.insertOne({ _id: 1, first: "a", last: "b" });
    await c.updateOne({}, [{ $set: { name: { $concat: ["$first", " ", "$last"] } } }]);
    assert.equal((await c.findOne()).name, "a b");
  });

  check("replaceOne and its refusal of another id", async (c) => {
    await c.insertOne({ _id: 1, a: 1 });
    await c.replaceOne({ _id: 1 }, { b: 1 });
    assert.deepEqual(await c.findOne(), { _id: 1, b: 1 });
    await fails(66, c.replaceOne({ _id: 1 }, { _id: 2 }));
  });

  check("findOneAnd…", async (c) => {
    await c.insertMany([1, 2, 3].map((n) => ({ _id: n, n })));
    assert.equal((await c.findOneAndUpdate({ _id: 1 }, { $inc: { n: 1 } })).n, 1);
    const options = { returnDocument: "after", upsert: true };
    assert.equal((await c.findOneAndReplace({ _id: 4 }, { n: 4 }, options)).n, 4);
    assert.equal((await c.findOneAndDelete({}, { sort: { n: -1 } }))._id, 4);
    assert.equal(await c.findOneAndDelete({ _id: 99 }), null);
  });

  check("deletes count", async (c) => {
    await c.insertMany([1, 2, 3, 4].map((n) => ({ n })));
    assert.equal((await c.deleteOne({ n: { $gt: 1 } })).deletedCount, 1);
    assert.equal((await c.deleteMany({})).deletedCount, 3);
  });
});

describe("reads", () => {
  check("a cursor of many batches, in order", async (c) => {
    await c.insertMany(Array.from({ length: 1000 }, (_, n) => ({ _id: n })));
    let expected = 0;
    for await (const doc of c.find().sort({ _id: 1 }).batchSize(13)) {
      assert.equal(doc._id, expected++);
    }
    assert.equal(expected, 1000);
  });

  check("a cursor that is closed early is gone", async (c, db) => {
    await c.insertMany(Array.from({ length: 100 }, (_, n) => ({ n })));
    const cursor = c.find().batchSize(2);
    await cursor.next();
    const id = cursor.id;
    await cursor.close();
    await fails(43, db.command({ getMore: id, collection: "c" }));
  });

  check("documents as a stream", async (c) => {
    await c.insertMany(Array.from({ length: 300 }, (_, n) => ({ n })));
    let count = 0;
    for await (const _ of c.find().stream()) count++;
    assert.equal(count, 300);
  });

  check("query operators", async (c) => {
    await c.insertMany(
      Array.from({ length: 10 }, (_, n) => ({ n, s: `s${n}`, t: n % 2 ? ["odd"] : ["even", "x"] })),
    );
    for (const [filter, count] of [
      [{ n: { $gt: 3, $lte: 7 } }, 4],
      [{ n: { $in: [1, 2] } }, 2],
      [{ s: /^S[12]$/i }, 2],
      [{ t: "x" }, 5],
      [{ t: { $size: 1 } }, 5],
      [{ $or: [{ n: 0 }, { t: { $all: ["odd"] } }] }, 6],
      [{ t: { $elemMatch: { $in: ["odd", "x"] } } }, 10],
      [{ $expr: { $gt: ["$n", 7] } }, 2],
      [{ none: { $exists: false } }, 10],
    ]) {
      assert.equal(await c.countDocuments(filter), count, JSON.stringify(filter));
    }
  });

  check("projection, sort, skip, limit", async (c) => {
    await c.insertMany([3, 1, 2].map((n) => ({ _id: n, n, other: 1 })));
    const options = { projection: { _id: 0, n: 1 }, sort: { n: -1 }, skip: 1, limit: 1 };
    assert.deepEqual(await c.find({}, options).toArray(), [{ n: 2 }]);
  });

  check("distinct and counts", async (c) => {
    await c.insertMany([{ v: 1 }, { v: [1, 2] }, { v: "a" }]);
    assert.deepEqual(await c.distinct("v"), [1, 2, "a"]);
    assert.equal(await c.estimatedDocumentCount(), 3);
  });

  check("bad queries carry their codes", async (c) => {
    await fails(2, c.findOne({ a: { $none: 1 } }));
    await fails(2, c.findOne({ $none: 1 }));
  });
});

describe("indexes", () => {
  check("are made, listed, used, dropped", async (c) => {
    await c.insertMany(Array.from({ length: 500 }, (_, n) => ({ a: n % 50, b: n })));
    assert.equal(await c.createIndex({ a: 1, b: -1 }), "a_1_b_-1");
    const plan = await c.find({ a: 3 }).explain("executionStats");
    assert.match(JSON.stringify(plan.queryPlanner.winningPlan), /IXSCAN/);
    assert.equal(plan.executionStats.totalDocsExamined, 10);
    assert.deepEqual((await c.indexes()).map((i) => i.name), ["_id_", "a_1_b_-1"]);
    await c.dropIndex("a_1_b_-1");
    await fails(27, c.dropIndex("a_1_b_-1"));
  });

  check("unique", async (c) => {
    await c.createIndex({ u: 1 }, { unique: true });
    await c.insertOne({ u: 1 });
    await fails(11000, c.insertOne({ u: 1 }));
  });

  check("partial and sparse", async (c) => {
    await c.createIndexes([
      { key: { p: 1 }, unique: true, partialFilterExpression: { on: true } },
      { key: { s: 1 }, unique: true, sparse: true },
    ]);
    await c.insertMany([{ p: 1 }, { p: 1 }, { p: 1, on: true, s: 1 }]);
    await fails(11000, c.insertOne({ p: 1, on: true }));
    await fails(11000, c.insertOne({ s: 1 }));
  });
});

describe("aggregation", () => {
  const docs = Array.from({ length: 6 }, (_, n) => ({ _id: n, k: "ab"[n % 2], n, t: [n, n + 1] }));

  check("$group", async (c) => {
    await c.insertMany(docs);
    const got = await c
      .aggregate([{ $group: { _id: "$k", sum: { $sum: "$n" }, max: { $max: "$n" } } }, { $sort: { _id: 1 } }])
      .toArray();
    assert.deepEqual(got, [
      { _id: "a", sum: 6, max: 4 },
      { _id: "b", sum: 9, max: 5 },
    ]);
  });

  check("$unwind, $match, $project, $limit", async (c) => {
    await c.insertMany(docs);
    const got = await c
      .aggregate([
        { $unwind: "$t" },
        { $match: { t: { $gte: 5 } } },
        { $project: { _id: 0, t: 1, even: { $eq: [{ $mod: ["$t", 2] }, 0] } } },
        { $sort: { t: -1 } },
        { $limit: 1 },
      ])
      .toArray();
    assert.deepEqual(got, [{ t: 6, even: true }]);
  });

  check("an unknown stage is refused", async (c) => {
    await fails(40324, c.aggregate([{ $none: {} }]).toArray());
  });
});

describe("collections", () => {
  check("create, list, rename, drop", async (_, db) => {
    await db.createCollection("x");
    await fails(48, db.createCollection("x", { capped: true, size: 4096 }));
    await db.renameCollection("x", "y");
    assert.deepEqual((await db.listCollections().toArray()).map((c) => c.name), ["y"]);
    assert.equal(await db.dropCollection("y"), true);
  });

  check("a capped collection keeps the newest", async (_, db) => {
    const c = await db.createCollection("k", { capped: true, size: 100_000, max: 2 });
    await c.insertMany([1, 2, 3].map((_id) => ({ _id })));
    assert.deepEqual((await c.find().toArray()).map((d) => d._id), [2, 3]);
  });

  check("a tailable cursor waits for what comes", async (_, db) => {
    const c = await db.createCollection("k", { capped: true, size: 100_000 });
    await c.insertOne({ _id: 1 });
    const cursor = c.find({}, { tailable: true, awaitData: true, maxAwaitTimeMS: 20_000 });
    assert.equal((await cursor.next())._id, 1);
    const [next] = await Promise.all([cursor.next(), c.insertOne({ _id: 2 })]);
    assert.equal(next._id, 2);
    await cursor.close();
  });

  check("a validator refuses", async (_, db) => {
    const c = await db.createCollection("v", {
      validator: { $jsonSchema: { required: ["name"], properties: { name: { bsonType: "string" } } } },
    });
    await c.insertOne({ name: "x" });
    await fails(121, c.insertOne({ name: 1 }));
  });

  check("statistics", async (c, db) => {
    await c.insertMany([{}, {}, {}]);
    assert.equal(Number((await db.stats()).objects), 3);
    assert.equal((await db.command({ collStats: "c" })).count, 3);
  });

  check("GridFS stores and gives back a model", async (_, db) => {
    const bytes = Buffer.alloc(1_000_000, "model");
    const bucket = new GridFSBucket(db);
    const upload = bucket.openUploadStream("m");
    await pipeline(Readable.from([bytes]), upload);
    const chunks = await bucket.openDownloadStream(upload.id).toArray();
    assert.ok(Buffer.concat(chunks).equals(bytes));
  });
});
