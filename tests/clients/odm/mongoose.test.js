// mongoose against a running server (KAURI_URI): the effects of its models' operations on the server. Run by mocha.
"use strict";

const assert = require("node:assert/strict");
const mongoose = require("mongoose");

const { Schema } = mongoose;

describe("mongoose", () => {
  let connection;
  let serial = 0;

  before(async () => {
    connection = await mongoose.createConnection(`${process.env.KAURI_URI}mongoose_own`).asPromise();
  });

  after(async () => {
    await connection.dropDatabase();
    await connection.close();
  });

  /** A model of this schema, with a collection and indexes of its own. */
  async function modelOf(definition, options) {
    const model = connection.model(`M${serial++}`, new Schema(definition, options));
    await model.init();
    return model;
  }

  it("builds the indexes of a schema, and syncIndexes drops others", async () => {
    const model = await modelOf({ name: { type: String, unique: true }, at: { type: Date, expires: 60 } });
    await model.collection.createIndex({ other: 1 });
    assert.deepEqual(await model.diffIndexes(), { toDrop: ["other_1"], toCreate: [] });
    assert.deepEqual(await model.syncIndexes(), ["other_1"]);
    const indexes = await model.listIndexes();
    assert.deepEqual(indexes.map((index) => index.name).sort(), ["_id_", "at_1", "name_1"]);
    assert.equal(indexes.find((index) => index.name === "at_1").expireAfterSeconds, 60);
    assert.equal(indexes.find((index) => index.name === "name_1").unique, true);
  });

  it("reports a duplicate key with its pattern and value", async () => {
    const model = await modelOf({ name: { type: String, unique: true } });
    await model.create({ name: "a" });
    await assert.rejects(model.create({ name: "a" }), (error) => {
      assert.equal(error.code, 11000);
      assert.deepEqual(error.keyPattern, { name: 1 });
      assert.deepEqual(error.keyValue, { name: "a" });
      return true;
    });
  });

  it("keeps every type of a schema", async () => {
    const model = await modelOf({
      string: String,
      number: Number,
      date: Date,
      buffer: Buffer,
      boolean: Boolean,
      mixed: {},
      id: Schema.Types.ObjectId,
      list: [Number],
      decimal: Schema.Types.Decimal128,
      map: { type: Map, of: Number },
      uuid: Schema.Types.UUID,
      big: BigInt,
      double: Schema.Types.Double,
      int: Schema.Types.Int32,
    });
    const values = {
      string: "é",
      number: 1.5,
      date: new Date(1_700_000_000_123),
      buffer: Buffer.from([0, 255]),
      boolean: false,
      mixed: { a: [1, { b: null }] },
      id: new mongoose.Types.ObjectId(),
      list: [3, 1, 2],
      decimal: "12.340",
      map: { x: 1, y: 2 },
      uuid: "0de3f8a0-1f2d-4c0b-8b1a-5d2f7f0e9a11",
      big: 2n ** 60n,
      double: 2,
      int: 7,
    };
    const { _id } = await model.create(values);
    const found = await model.findById(_id);
    assert.equal(found.string, "é");
    assert.equal(found.date.getTime(), 1_700_000_000_123);
    assert.deepEqual([...found.buffer], [0, 255]);
    assert.deepEqual(found.mixed, values.mixed);
    assert.deepEqual([...found.list], [3, 1, 2]);
    assert.equal(found.decimal.toString(), "12.340");
    assert.deepEqual([...found.map.entries()], [["x", 1], ["y", 2]]);
    assert.equal(found.uuid.toString(), values.uuid);
    assert.equal(found.big, 2n ** 60n);
    const [types] = await model.aggregate([
      { $project: { double: { $type: "$double" }, int: { $type: "$int" }, big: { $type: "$big" } } },
    ]);
    assert.deepEqual([types.double, types.int, types.big], ["double", "int", "long"]);
  });

  it("saves what changed, and refuses a document that another save has overtaken", async () => {
    const model = await modelOf({ list: [Number], n: Number }, { optimisticConcurrency: true });
    const { _id } = await model.create({ list: [1, 2], n: 0 });
    const [first, second] = await Promise.all([model.findById(_id), model.findById(_id)]);
    first.n = 1;
    first.list.push(3);
    await first.save();
    second.n = 2;
    await assert.rejects(second.save(), { name: "VersionError" });
    const found = await model.findById(_id).lean();
    assert.deepEqual([found.n, found.list, found.__v], [1, [1, 2, 3], 1]);
  });

  it("populates references, lists of them and virtuals", async () => {
    const person = connection.model("Person", new Schema({ name: String }, { toObject: { virtuals: true } }));
    const story = connection.model(
      "Story",
      new Schema({
        title: String,
        author: { type: Schema.Types.ObjectId, ref: "Person" },
        fans: [{ type: Schema.Types.ObjectId, ref: "Person" }],
      }),
    );
    person.schema.virtual("count", { ref: "Story", localField: "_id", foreignField: "author", count: true });
    const [ann, bob, cy] = await person.create([{ name: "Ann" }, { name: "Bob" }, { name: "Cy" }]);
    await story.create([
      { title: "One", author: ann, fans: [cy, bob] },
      { title: "Two", author: ann, fans: [] },
    ]);
    const fans = { path: "fans", match: { name: "Bob" } };
    const one = await story.findOne({ title: "One" }).populate("author").populate(fans);
    assert.equal(one.author.name, "Ann");
    assert.deepEqual(one.fans.map((fan) => fan.name), ["Bob"]);
    const counted = await person.findById(ann._id).populate("count");
    assert.equal(counted.count, 2);
  });

  it("tells discriminators apart", async () => {
    const base = await modelOf({ at: Number }, { discriminatorKey: "kind" });
    const click = base.discriminator(`Click${serial}`, new Schema({ url: String }));
    const view = base.discriminator(`View${serial}`, new Schema({ page: Number }));
    await click.create({ at: 1, url: "u" });
    await view.create([{ at: 2, page: 3 }, { at: 3, page: 4 }]);
    assert.equal(await base.countDocuments(), 3);
    assert.equal(await view.countDocuments({ page: { $gt: 3 } }), 1);
    assert.deepEqual((await base.find().sort("at")).map((event) => event.constructor.modelName), [
      click.modelName,
      view.modelName,
      view.modelName,
    ]);
  });

  it("updates by filters, positions and upserts", async () => {
    const definition = { name: String, marks: [{ of: String, n: Number }], tags: [String] };
    const model = await modelOf(definition, { timestamps: true });
    const { _id, createdAt } = await model.create({ name: "a", marks: [{ of: "x", n: 1 }, { of: "y", n: 5 }] });
    await model.updateOne({ _id }, { $set: { "marks.$[low].n": 4 } }, { arrayFilters: [{ "low.n": { $lt: 4 } }] });
    const change = { $inc: { "marks.$.n": 1 }, $addToSet: { tags: { $each: ["t", "t"] } } };
    await model.updateOne({ _id, "marks.of": "y" }, change);
    const found = await model.findById(_id);
    assert.deepEqual(found.marks.map((mark) => mark.n), [4, 6]);
    assert.deepEqual([...found.tags], ["t"]);
    assert.equal(found.createdAt.getTime(), createdAt.getTime());
    assert.ok(found.updatedAt >= createdAt);
    const options = { upsert: true, returnDocument: "after" };
    const made = await model.findOneAndUpdate({ name: "new" }, { $setOnInsert: { tags: ["made"] } }, options);
    assert.deepEqual([made.name, ...made.tags], ["new", "made"]);
    assert.ok(made.createdAt instanceof Date);
    const result = await model.updateOne({ name: "newer" }, { name: "newer" }, { upsert: true });
    assert.deepEqual([result.matchedCount, result.modifiedCount, result.upsertedCount], [0, 0, 1]);
  });

  it("writes in bulk, and says which writes failed", async () => {
    const model = await modelOf({ _id: Number, n: Number });
    await model.insertMany([{ _id: 1, n: 1 }, { _id: 2, n: 2 }]);
    const result = await model.bulkWrite([
      { insertOne: { document: { _id: 3, n: 3 } } },
      { updateMany: { filter: { n: { $gte: 2 } }, update: { $inc: { n: 10 } } } },
      { replaceOne: { filter: { _id: 1 }, replacement: { n: 7 } } },
      { deleteOne: { filter: { _id: 2 } } },
    ]);
    assert.deepEqual([result.insertedCount, result.modifiedCount, result.deletedCount], [1, 3, 1]);
    const left = await model.find().sort("_id").lean();
    assert.deepEqual(left.map(({ _id, n }) => [_id, n]), [
      [1, 7],
      [3, 13],
    ]);
    await assert.rejects(model.insertMany([{ _id: 3 }, { _id: 4 }, { _id: 1 }], { ordered: false }), (error) => {
      assert.deepEqual(error.writeErrors.map((failed) => failed.err.index), [0, 2]);
      return true;
    });
    assert.equal(await model.countDocuments(), 3);
  });

  it("reads by cursors with hooks and projections", async () => {
    const schema = new Schema({ n: Number, secret: { type: String, select: false } });
    schema.pre("find", function () {
      this.where({ n: { $ne: 0 } });
    });
    const model = connection.model(`M${serial++}`, schema);
    await model.insertMany(Array.from({ length: 250 }, (_, n) => ({ n, secret: "s" })));
    const seen = [];
    for await (const document of model.find().sort({ n: -1 }).cursor({ batchSize: 40 })) {
      assert.equal(document.secret, undefined);
      seen.push(document.n);
    }
    assert.deepEqual([seen.length, seen[0], seen[248]], [249, 249, 1]);
    assert.deepEqual(await model.distinct("n", { n: { $lt: 3 } }), [0, 1, 2]);
    assert.equal((await model.find().select("+secret").limit(1))[0].secret, "s");
  });

  it("aggregates with joins and facets", async () => {
    const left = await modelOf({ _id: Number, group: String });
    const right = await modelOf({ of: Number, n: Number });
    await left.insertMany([{ _id: 1, group: "a" }, { _id: 2, group: "a" }, { _id: 3, group: "b" }]);
    await right.insertMany([{ of: 1, n: 5 }, { of: 1, n: 6 }, { of: 3, n: 7 }]);
    const found = await left
      .aggregate()
      .lookup({ from: right.collection.name, localField: "_id", foreignField: "of", as: "joined" })
      .group({ _id: "$group", sum: { $sum: { $sum: "$joined.n" } } })
      .sort("_id");
    assert.deepEqual(found, [
      { _id: "a", sum: 11 },
      { _id: "b", sum: 7 },
    ]);
    const wanted = { total: [{ $count: "n" }], first: [{ $sort: { _id: 1 } }, { $limit: 1 }] };
    const [facets] = await left.aggregate().facet(wanted);
    assert.deepEqual([facets.total[0].n, facets.first[0]._id], [3, 1]);
  });

  it("makes capped collections and views of models", async () => {
    const capped = await modelOf({ n: Number }, { capped: { size: 4096, max: 2 }, autoCreate: true });
    await capped.create({ n: 1 });
    await capped.create({ n: 2 });
    await capped.create({ n: 3 });
    assert.deepEqual((await capped.find()).map((document) => document.n), [2, 3]);
    const view = connection.model(`M${serial++}`, new Schema({ n: Number }, { autoCreate: false, autoIndex: false }));
    await view.createCollection({ viewOn: capped.collection.name, pipeline: [{ $match: { n: 3 } }] });
    assert.deepEqual((await view.find()).map((document) => document.n), [3]);
  });
});
