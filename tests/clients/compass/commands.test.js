// The commands of MongoDB Compass to KAURI_URI, a server or a replica set: those of its views, one test each, as it
// sends them through the same driver. No package registry has Compass itself. Reads go where the connection string
// says; a causal session lets them see what was written.
"use strict";

const assert = require("node:assert/strict");
const { after, before, test } = require("node:test");
const { MongoClient, ReadPreference } = require("mongodb");

const uri = process.env.KAURI_URI;
const options = new URLSearchParams(uri.split("?")[1]);
const setName = options.get("replicaSet");
const client = new MongoClient(uri, { appName: "MongoDB Compass", serverSelectionTimeoutMS: 10_000 });
const wanted = ReadPreference.fromString(options.get("readPreference") ?? "primary");
const readsSecondaries = wanted.mode !== "primary";
const admin = client.db("admin");
const db = client.db("shop");
const orders = db.collection("orders");
const COUNT = 500;
let session;

/** Runs a command as Compass does: with the read preference of the connection. */
function run(on, command) {
  const mode = readsSecondaries ? wanted : ReadPreference.primaryPreferred;
  return on.command(command, { readPreference: mode, session });
}

async function fails(code, promise) {
  await assert.rejects(promise, (error) => error.code === code || assert.fail(`${error.code}: ${error.message}`));
}

before(async () => {
  await client.connect();
  session = client.startSession({ causalConsistency: true });
  const documents = Array.from({ length: COUNT }, (_, n) => ({ _id: n, n: n % 10, s: `name ${n}` }));
  await orders.insertMany(documents, { session });
});
after(async () => {
  await session.endSession();
  await client.close();
});

test("the connection's topology", async () => {
  const told = [];
  const watched = new MongoClient(uri);
  watched.on("topologyDescriptionChanged", (event) => told.push(event.newDescription));
  try {
    await watched.connect();
    const isDone = (one) => [...one.servers.values()].every((server) => server.type !== "Unknown");
    while (!isDone(told.at(-1))) {
      await new Promise((resolve) => watched.once("topologyDescriptionChanged", resolve));
    }
    const { servers, setName: name, type } = told.at(-1);
    assert.equal(name ?? null, setName);
    assert.equal(type, setName ? "ReplicaSetWithPrimary" : "Single");
    const types = [...servers.values()].map((server) => server.type).sort();
    assert.deepEqual(types, setName ? ["RSPrimary", "RSSecondary", "RSSecondary"] : ["Standalone"]);
  } finally {
    await watched.close();
  }
});

test("the instance", async () => {
  const { authInfo } = await run(admin, { connectionStatus: 1, showPrivileges: true });
  assert.deepEqual(authInfo, { authenticatedUsers: [], authenticatedUserRoles: [], authenticatedUserPrivileges: [] });
  const host = await run(admin, { hostInfo: 1 });
  assert.ok(host.system.numCores > 0 && host.system.memSizeMB > 0 && host.os.type);
  const build = await run(admin, { buildInfo: 1 });
  assert.match(build.version, /^8\.0\./);
  assert.deepEqual(build.modules, []);
  const fcv = await run(admin, { getParameter: 1, featureCompatibilityVersion: 1 });
  assert.equal(fcv.featureCompatibilityVersion.version, "8.0");
  const options = await run(admin, { getCmdLineOpts: 1 });
  assert.equal(options.parsed.replication?.replSet ?? options.parsed.replication?.replSetName ?? null, setName);
  // No server of Atlas.
  await fails(59, run(admin, { atlasVersion: 1 }));
  assert.equal(await admin.collection("atlascli").countDocuments({}, { session }), 0);
});

test("databases and collections", async () => {
  const { databases } = await run(admin, { listDatabases: 1, nameOnly: true });
  assert.ok(databases.map(({ name }) => name).includes("shop"));
  for (const { name } of databases) {
    assert.equal((await run(client.db(name), { dbStats: 1 })).db, name);
  }
  const stats = await run(db, { dbStats: 1 });
  assert.deepEqual([stats.collections, stats.objects, stats.indexes], [1, COUNT, 1]);
  const listed = await db.listCollections({}, { nameOnly: false, session }).toArray();
  assert.deepEqual(listed.map(({ name, type }) => [name, type]), [["orders", "collection"]]);
});

test("a collection's figures", async () => {
  const of = (name) => `$storageStats.${name}`;
  const total = (name) => ({ $sum: of(name) });
  const [stats] = await orders
    .aggregate(
      [
        { $collStats: { storageStats: {} } },
        {
          $group: {
            _id: null,
            capped: { $first: of("capped") },
            count: total("count"),
            size: { $sum: { $toDouble: of("size") } },
            storageSize: { $sum: { $toDouble: of("storageSize") } },
            totalIndexSize: { $sum: { $toDouble: of("totalIndexSize") } },
            freeStorageSize: { $sum: { $toDouble: of("freeStorageSize") } },
            unscaledCollSize: { $sum: { $multiply: [{ $toDouble: of("avgObjSize") }, { $toDouble: of("count") }] } },
            nindexes: { $max: of("nindexes") },
          },
        },
        {
          $addFields: {
            avgObjSize: { $cond: [{ $eq: ["$count", 0] }, 0, { $divide: ["$unscaledCollSize", { $toDouble: "$count" }] }] },
          },
        },
      ],
      { session },
    )
    .toArray();
  assert.deepEqual([stats.capped, stats.count, stats.nindexes], [false, COUNT, 1]);
  assert.ok(stats.size > COUNT * 20 && stats.avgObjSize > 20 && stats.storageSize > 0 && stats.totalIndexSize > 0);
  assert.equal(await orders.estimatedDocumentCount({ session }), COUNT);
});

test("documents", async () => {
  const options = { session, sort: { _id: -1 }, skip: 20, limit: 20, promoteValues: false, maxTimeMS: 60_000 };
  const found = await orders.find({ n: { $gte: 5 } }, options).toArray();
  assert.deepEqual([found.length, Number(found[0]._id)], [20, 459]);
  const counted = { session, hint: "_id_", maxTimeMS: 5000 };
  assert.equal(await orders.countDocuments({}, counted), COUNT);
});

test("documents are edited", async () => {
  await orders.insertOne({ _id: "new", n: 1 }, { session });
  const update = { $set: { n: 2 }, $unset: { gone: true } };
  const changed = await orders.findOneAndUpdate({ _id: "new", n: 1 }, update, { session, returnDocument: "after" });
  assert.deepEqual(changed, { _id: "new", n: 2 });
  // Somebody else has changed it: nothing is found.
  assert.equal(await orders.findOneAndUpdate({ _id: "new", n: 1 }, update, { session }), null);
  const replaced = await orders.findOneAndReplace({ _id: "new" }, { m: 1 }, { session, returnDocument: "after" });
  assert.deepEqual(replaced, { _id: "new", m: 1 });
  assert.deepEqual(await orders.findOne({ _id: "new" }, { session }), { _id: "new", m: 1 });
  const models = [{ updateMany: { filter: { n: 3 }, update: { $set: { b: 1 } } } }, { deleteMany: { filter: { _id: "new" } } }];
  const done = await orders.bulkWrite(models, { session });
  assert.deepEqual([done.modifiedCount, done.deletedCount], [COUNT / 10, 1]);
});

test("the schema's sample", async () => {
  const stages = [{ $match: {} }, { $sample: { size: 100 } }];
  const found = await orders.aggregate(stages, { session, allowDiskUse: true, maxTimeMS: 10_000 }).toArray();
  assert.equal(found.length, 100);
});

test("a query's plan", async () => {
  const plan = await orders.find({ n: 3 }, { session, sort: { _id: 1 } }).explain("allPlansExecution");
  assert.equal(plan.executionStats.nReturned, COUNT / 10);
  const stages = [{ $match: { n: 3 } }, { $group: { _id: "$s" } }];
  const grouped = await orders.aggregate(stages, { session }).explain("queryPlanner");
  assert.ok(grouped.ok && (grouped.stages || grouped.queryPlanner));
});

test("an aggregation and its result as a collection", async () => {
  const stages = [{ $match: { n: { $lt: 2 } } }, { $group: { _id: "$n", count: { $sum: 1 } } }, { $sort: { _id: 1 } }];
  const found = await orders.aggregate([...stages, { $limit: 20 }], { session, allowDiskUse: true }).toArray();
  assert.deepEqual(found, [0, 1].map((_id) => ({ _id, count: COUNT / 10 })));
  await orders.aggregate([...stages, { $out: "counts" }], { session, readPreference: "primary" }).toArray();
  await db.createCollection("few", { viewOn: "orders", pipeline: [{ $match: { _id: { $lt: 3 } } }], session });
  assert.equal(await db.collection("counts").countDocuments({}, { session }), 2);
  assert.equal(await db.collection("few").countDocuments({}, { session }), 3);
  await db.collection("few").drop({ session });
  await db.collection("counts").rename("totals", { session });
  await db.collection("totals").drop({ session });
});

test("indexes", async () => {
  assert.equal(await orders.createIndex({ n: 1 }, { name: "n_1", session }), "n_1");
  await db.command({ collMod: "orders", index: { name: "n_1", hidden: true } }, { session });
  const indexes = await orders.listIndexes({ session }).toArray();
  assert.deepEqual(indexes.map(({ name, hidden }) => [name, hidden ?? false]), [["_id_", false], ["n_1", true]]);
  const used = await orders.aggregate([{ $indexStats: {} }, { $sort: { name: 1 } }], { session }).toArray();
  assert.deepEqual(used.map(({ name }) => name), ["_id_", "n_1"]);
  const [{ sizes }] = await orders
    .aggregate([{ $collStats: { storageStats: {} } }, { $project: { sizes: "$storageStats.indexSizes" } }], { session })
    .toArray();
  assert.deepEqual(Object.keys(sizes).sort(), ["_id_", "n_1"]);
  await orders.dropIndex("n_1", { session });
  // Compass shows no search indexes after an error.
  await assert.rejects(orders.listSearchIndexes().toArray());
});

test("validation", async () => {
  const validator = { $jsonSchema: { required: ["n"] } };
  const rule = { collMod: "orders", validator, validationLevel: "strict", validationAction: "error" };
  await db.command(rule, { session });
  await fails(121, orders.insertOne({ _id: "bad" }, { session }));
  const [{ options }] = await db.listCollections({ name: "orders" }, { session }).toArray();
  assert.deepEqual(options.validator, validator);
  await db.command({ ...rule, validator: {} }, { session });
});

test("performance", async () => {
  const status = await run(admin, { serverStatus: 1 });
  for (const section of ["opcounters", "globalLock", "network", "connections", "mem"]) {
    assert.ok(status[section], section);
  }
  assert.equal(status.repl?.setName ?? null, setName);
  assert.equal(status.repl?.secondary ?? false, readsSecondaries);
  const { totals } = await run(admin, { top: 1 });
  assert.ok(totals["shop.orders"].total.count > 0);
  const stages = [{ $currentOp: { allUsers: true, idleConnections: false } }, { $match: { op: { $exists: true } } }];
  const operations = await admin.aggregate(stages, { session }).toArray();
  assert.ok(operations.some(({ command }) => command?.aggregate === 1 && command.pipeline));
  // An operation that is over is no error.
  assert.equal((await admin.command({ killOp: 1, op: 1_000_000_000 })).ok, 1);
});
