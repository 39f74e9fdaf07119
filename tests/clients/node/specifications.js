// Runs unified specification tests with the Node.js driver against the set at KAURI_URI.
//
//     node specifications.js DIRECTORY SPECIFICATION…
//
// DIRECTORY/SPECIFICATION holds JSON files of the unified test format. Prints one line of JSON for each test: its file,
// its name, its outcome (`passed`, `failed`, or `skipped` if it needs another deployment or something that this program
// does not know), and why.
'use strict'
const fs = require('fs')
const path = require('path')
const { BSON, GridFSBucket, MongoClient, MongoServerError } = require('mongodb')
const { EJSON } = BSON

const TOPOLOGY = 'replicaset'
// Never shown to listeners of a test that does not ask for them, as far as the tests here are concerned.
const HIDDEN = ['configureFailPoint', 'hello', 'isMaster', 'ismaster', 'killAllSessions']
const EVENTS = ['commandStartedEvent', 'commandSucceededEvent', 'commandFailedEvent']

class Skip extends Error {}

// A value as plain JSON, numbers without their types.
const plain = value => (value === undefined ? undefined : JSON.parse(EJSON.stringify(value, { relaxed: true })))
const show = value => JSON.stringify(value)?.slice(0, 400)
const bytes = value => Buffer.from(value.$binary.base64, 'base64')

class Test {
  constructor(admin, version) {
    Object.assign(this, { admin, version, entities: {}, events: {}, clients: [], failPoints: [] })
  }

  meets(requirements) {
    const number = text => text.split('.').reduce((sum, part, at) => sum + Number(part) * 1000 ** (2 - at), 0)
    const fits = r =>
      (!r.topologies || r.topologies.includes(TOPOLOGY)) && !(r.auth || r.csfle) && r.serverless !== 'require' &&
      (!r.minServerVersion || number(r.minServerVersion) <= number(this.version)) &&
      (!r.maxServerVersion || number(r.maxServerVersion) >= number(this.version))
    return !requirements || requirements.some(fits)
  }

  async create(list) {
    for (const entity of list ?? []) {
      const [[kind, spec]] = Object.entries(entity)
      if (kind === 'client') {
        const options = { monitorCommands: true, heartbeatFrequencyMS: 500, minHeartbeatFrequencyMS: 50, ...spec.uriOptions }
        const client = new MongoClient(process.env.KAURI_URI, options)
        const hidden = [...HIDDEN, ...(spec.ignoreCommandMonitoringEvents ?? [])]
        const events = (this.events[spec.id] = [])
        for (const name of spec.observeEvents ?? []) {
          if (!EVENTS.includes(name)) throw new Skip(`events: ${name}`)
          const listen = event => {
            if (!this.hasEnded && !hidden.includes(event.commandName)) events.push({ name, event: plainEvent(event) })
          }
          client.on(name.replace('Event', ''), listen)
        }
        this.clients.push(client)
        this.entities[spec.id] = await client.connect()
      } else if (kind === 'database') {
        this.entities[spec.id] = this.entities[spec.client].db(spec.databaseName, spec.databaseOptions)
      } else if (kind === 'collection') {
        this.entities[spec.id] = this.entities[spec.database].collection(spec.collectionName, spec.collectionOptions)
      } else if (kind === 'session') {
        this.entities[spec.id] = this.entities[spec.client].startSession(spec.sessionOptions)
      } else if (kind === 'bucket') {
        this.entities[spec.id] = new GridFSBucket(this.entities[spec.database], spec.bucketOptions)
      } else throw new Skip(`entity: ${kind}`)
    }
  }

  async run(file, test) {
    for (const { databaseName, collectionName, documents } of file.initialData ?? []) {
      const options = { writeConcern: { w: 'majority' } }
      const database = this.admin.db(databaseName, options)
      await database.collection(collectionName).drop()
      await database.createCollection(collectionName)
      if (documents.length) await database.collection(collectionName).insertMany(documents)
    }
    await this.create(file.createEntities)
    for (const operation of test.operations) await this.operate(operation)
    this.hasEnded = true
    await this.end()
    for (const expected of test.expectEvents ?? []) this.compareEvents(expected)
    for (const { databaseName, collectionName, documents } of test.outcome ?? []) {
      const found = await this.admin.db(databaseName).collection(collectionName).find().sort({ _id: 1 }).toArray()
      this.match(documents.map(document => plain(document)), plain(found), `${collectionName} at the end`)
    }
  }

  async end() {
    for (const name of this.failPoints.splice(0)) await this.admin.db('admin').command({ configureFailPoint: name, mode: 'off' })
    for (const client of this.clients.splice(0)) await client.close()
  }

  async operate({ name, object, arguments: given = {}, expectError, expectResult, ignoreResultAndError, saveResultAsEntity }) {
    if (saveResultAsEntity) throw new Skip('saved results')
    const args = { ...given }
    if (args.session) args.session = this.entities[args.session]
    let result
    try {
      result = object === 'testRunner' ? await this.testRunner(name, given) : await this.call(this.entities[object], name, args)
    } catch (error) {
      if (error instanceof Skip || (!expectError && !ignoreResultAndError)) throw error
      if (expectError) this.compareError(expectError, error, name)
      return
    }
    if (expectError) throw new Error(`${name} should have failed, and gave ${show(result)}`)
    if (expectResult !== undefined) this.match(plain(expectResult), plain(result), name, true)
  }

  async testRunner(name, { failPoint, entities, client, session }) {
    const lsids = () => this.events[client].filter(e => e.name === EVENTS[0]).slice(-2).map(e => show(e.event.command.lsid))
    const is = (wanted, what) => {
      if (!wanted) throw new Error(`${name}: ${what ?? ''}`)
    }
    if (name === 'failPoint') {
      this.failPoints.push(failPoint.configureFailPoint)
      await this.entities[client].db('admin').command(failPoint)
    } else if (name === 'createEntities') await this.create(entities)
    else if (name === 'assertSameLsidOnLastTwoCommands') is(lsids()[0] === lsids()[1], lsids())
    else if (name === 'assertDifferentLsidOnLastTwoCommands') is(lsids()[0] !== lsids()[1], lsids())
    else if (name === 'assertSessionDirty') is(this.entities[session].serverSession.isDirty)
    else if (name === 'assertSessionNotDirty') is(!this.entities[session].serverSession.isDirty)
    else throw new Skip(name)
  }

  async call(object, name, args) {
    const operation = OPERATIONS[name]
    if (!operation) throw new Skip(name)
    return operation(object, args)
  }

  compareError(expected, error, name) {
    const wanted = (is, what) => {
      if (!is) throw new Error(`${name}: not ${what}: ${error.stack}`)
    }
    const of = error.errorResponse ?? error
    const { isClientError, errorContains, errorCode, errorCodeName, errorLabelsContain, errorLabelsOmit, expectResult } = expected
    if (isClientError !== undefined) wanted(isClientError === !(error instanceof MongoServerError), 'of the right side')
    if (errorContains) wanted(error.message.toLowerCase().includes(errorContains.toLowerCase()), errorContains)
    if (errorCode !== undefined) wanted(error.code === errorCode, errorCode)
    if (errorCodeName) wanted(of.codeName === errorCodeName, errorCodeName)
    for (const label of errorLabelsContain ?? []) wanted(error.hasErrorLabel(label), label)
    for (const label of errorLabelsOmit ?? []) wanted(!error.hasErrorLabel(label), `without ${label}`)
    if (expectResult) this.match(plain(expectResult), plain(resultOf(error.result ?? error.partialResult)), name, true)
    for (const key of Object.keys(expected)) if (!KNOWN_OF_ERRORS.includes(key)) throw new Skip(`expectError.${key}`)
  }

  compareEvents({ client, eventType = 'command', events, ignoreExtraEvents }) {
    if (eventType !== 'command') throw new Skip(`events: ${eventType}`)
    const found = this.events[client]
    if (found.length < events.length || (found.length > events.length && !ignoreExtraEvents)) {
      throw new Error(`${found.length} events, not ${events.length}: ${show(found)}`)
    }
    events.forEach((wanted, at) => {
      const [[name, fields]] = Object.entries(wanted)
      if (name !== found[at].name) throw new Error(`event ${at} is ${found[at].name}, not ${name}`)
      for (const [key, value] of Object.entries(plain(fields))) {
        if (!['command', 'reply', 'commandName', 'databaseName'].includes(key)) throw new Skip(`${name}.${key}`)
        this.match(value, found[at].event[key], `event ${at}: ${key}`, true)
      }
    })
  }

  // Fails unless a value is the expected one. A document at the root may have more fields.
  match(expected, actual, where, isRoot = false) {
    const fail = why => {
      throw new Error(`${where}: ${why}: expected ${show(expected)}, found ${show(actual)}`)
    }
    if (expected === null || typeof expected !== 'object') return expected === actual || fail('another value')
    const [operator] = Object.keys(expected)
    if (operator === '$$exists') return expected.$$exists === (actual !== undefined) || fail('existence')
    if (operator === '$$unsetOrMatches') {
      return actual === undefined || actual === null || this.match(expected[operator], actual, where, isRoot)
    }
    if (operator === '$$type') return actual !== undefined || fail('missing')
    if (operator === '$$sessionLsid') return this.match(plain(this.entities[expected[operator]].id), actual, where)
    if (operator === '$$matchesHexBytes') {
      return bytes(actual).equals(Buffer.from(expected[operator], 'hex')) || fail('other bytes')
    }
    if (operator?.startsWith('$$')) throw new Skip(operator)
    if (actual === null || typeof actual !== 'object' || Array.isArray(expected) !== Array.isArray(actual)) fail('another type')
    if (Array.isArray(expected) ? expected.length !== actual.length : !isRoot) {
      const more = Object.keys(actual).filter(key => !(key in expected))
      if (more.length) fail(`more: ${more}`)
    }
    // Elements of a list of results are roots as well.
    for (const key of Object.keys(expected)) this.match(expected[key], actual[key], `${where}.${key}`, isRoot && Array.isArray(expected))
    return true
  }
}

const KNOWN_OF_ERRORS = (
  'isError isClientError errorContains errorCode errorCodeName errorLabelsContain errorLabelsOmit expectResult'
).split(' ')

function plainEvent({ command, reply, commandName, databaseName }) {
  return { command: plain(command), reply: plain(reply), commandName, databaseName }
}

// The counts of a result, whose class has them as properties.
function resultOf(result) {
  if (!result) return result
  const names = 'insertedCount matchedCount modifiedCount deletedCount upsertedCount insertedIds upsertedIds insertedId upsertedId'
  return Object.fromEntries(names.split(' ').filter(name => result[name] !== undefined).map(name => [name, result[name]]))
}

const after = ({ returnDocument, ...options }) => (returnDocument ? { returnDocument: returnDocument.toLowerCase(), ...options } : options)
const read = async stream => Buffer.concat(await stream.toArray())
const OPERATIONS = {
  aggregate: (on, { pipeline, ...options }) => on.aggregate(pipeline, options).toArray(),
  bulkWrite: async (on, { requests, ...options }) => resultOf(await on.bulkWrite(requests, options)),
  clientBulkWrite: async (on, { models, verboseResults, ...options }) => {
    const list = models.map(model => Object.entries(model)[0]).map(([name, model]) => ({ name, ...model }))
    return resultOf(await on.bulkWrite(list, { ...options, ...(verboseResults && { verboseResults }) }))
  },
  countDocuments: (on, { filter, ...options }) => on.countDocuments(filter, options),
  createCollection: (on, { collection, ...options }) => on.createCollection(collection, options).then(() => undefined),
  createIndex: (on, { keys, ...options }) => on.createIndex(keys, options),
  deleteMany: async (on, { filter, ...options }) => resultOf(await on.deleteMany(filter, options)),
  deleteOne: async (on, { filter, ...options }) => resultOf(await on.deleteOne(filter, options)),
  distinct: (on, { fieldName, filter, ...options }) => on.distinct(fieldName, filter, options),
  download: async (on, { id }) => ({ $binary: { base64: (await read(on.openDownloadStream(id))).toString('base64') } }),
  downloadByName: async (on, { filename, ...options }) => ({
    $binary: { base64: (await read(on.openDownloadStreamByName(filename, options))).toString('base64') },
  }),
  dropCollection: (on, { collection, ...options }) => on.dropCollection(collection, options),
  dropDatabase: (on, { database, ...options }) => on.db(database).dropDatabase(options),
  dropIndexes: (on, options) => on.dropIndexes(options),
  endSession: on => on.endSession(),
  estimatedDocumentCount: (on, options) => on.estimatedDocumentCount(options),
  find: (on, { filter, ...options }) => on.find(filter, options).toArray(),
  findOne: (on, { filter, ...options }) => on.findOne(filter, options),
  findOneAndDelete: (on, { filter, ...options }) => on.findOneAndDelete(filter, options),
  findOneAndReplace: (on, { filter, replacement, ...options }) => on.findOneAndReplace(filter, replacement, after(options)),
  findOneAndUpdate: (on, { filter, update, ...options }) => on.findOneAndUpdate(filter, update, after(options)),
  insertMany: async (on, { documents, ...options }) => resultOf(await on.insertMany(documents, options)),
  insertOne: async (on, { document, ...options }) => resultOf(await on.insertOne(document, options)),
  listCollectionNames: async (on, { filter, ...options }) => {
    const list = await on.listCollections(filter ?? {}, { ...options, nameOnly: true }).toArray()
    return list.map(({ name }) => name)
  },
  listCollections: (on, { filter, ...options }) => on.listCollections(filter ?? {}, options).toArray(),
  listDatabaseNames: async (on, options) => (await on.db().admin().listDatabases({ ...options, nameOnly: true })).databases,
  listDatabases: async (on, options) => (await on.db().admin().listDatabases(options)).databases,
  listIndexes: (on, options) => on.listIndexes(options).toArray(),
  replaceOne: async (on, { filter, replacement, ...options }) => resultOf(await on.replaceOne(filter, replacement, options)),
  runCommand: (on, { command, commandName: _, ...options }) => on.command(command, options),
  updateMany: async (on, { filter, update, ...options }) => resultOf(await on.updateMany(filter, update, options)),
  updateOne: async (on, { filter, update, ...options }) => resultOf(await on.updateOne(filter, update, options)),
}

async function main([directory, ...specifications]) {
  const admin = await new MongoClient(process.env.KAURI_URI).connect()
  const { version } = await admin.db('admin').command({ buildInfo: 1 })
  for (const specification of specifications) {
    for (const name of fs.readdirSync(path.join(directory, specification)).filter(name => name.endsWith('.json')).sort()) {
      const file = EJSON.parse(fs.readFileSync(path.join(directory, specification, name), 'utf8'))
      for (const test of file.tests ?? []) {
        const running = new Test(admin, version)
        let [outcome, why] = ['passed', '']
        try {
          if (test.skipReason ?? file.skipReason) throw new Skip(test.skipReason ?? file.skipReason)
          if (![file, test].every(one => running.meets(one.runOnRequirements))) throw new Skip('another deployment')
          await running.run(file, test)
        } catch (error) {
          [outcome, why] = [error instanceof Skip ? 'skipped' : 'failed', error.stack]
        }
        await running.end()
        console.log(JSON.stringify({ file: `${specification}/${name}`, test: test.description, outcome, why }))
      }
    }
  }
  await admin.close()
}

main(process.argv.slice(2))
