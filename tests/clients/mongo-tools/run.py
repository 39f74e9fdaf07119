"""The MongoDB database tools against KAURI_URI, a server or a replica set: all data arrives byte by byte, and no tool
prints a warning.

Prints one line per check. The last line is the number of checks.
"""

import csv
import datetime
import decimal
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import threading
import uuid

import bson
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.errors import OperationFailure

programs = pathlib.Path(sys.argv[1])
uri = os.environ["KAURI_URI"]
is_set = "replicaSet=" in uri
client = MongoClient(uri)
raw = MongoClient(uri, document_class=RawBSONDocument)
scratch = pathlib.Path(tempfile.mkdtemp(prefix="mongo-tools-"))
made = 0

# What a tool says when all goes well has none of these. The counts that end a restore do.
TROUBLE = re.compile(r"error|fail|warn|panic|unable|could ?n.t|unknown", re.I)
COUNTS = re.compile(r"\b0 (document\(s\) failed to \w+|failures)")


def fail(what, text=""):
    sys.exit(f"{what}\n{text[-4000:]}")


def check(what, got, want):
    if got != want:
        fail(f"{what}:\n{got}\nnot\n{want}")


def tool(program, *arguments, says_more=(), fails=None):
    """Runs a tool; answers what it has written. Fails if it fails or warns.

    `says_more`: lines with one of these texts are the tool's own remarks. `fails`: it has to fail with this text.
    """
    ran = subprocess.run(
        [programs / program, "--uri", uri, *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    lines = COUNTS.sub("", ran.stderr).splitlines()
    trouble = [line for line in lines if TROUBLE.search(line) and not any(text in line for text in says_more)]
    command = " ".join([program, *map(str, arguments)])
    if fails is not None:
        if not ran.returncode or fails not in ran.stderr:
            fail(f"{command}: status {ran.returncode}, without {fails!r}", ran.stderr)
    elif ran.returncode or trouble:
        fail(f"{command}: status {ran.returncode}, {trouble}", ran.stderr)
    return ran.stdout


def checked(what):
    """Counts a check that was made."""
    global made
    made += 1
    print(f"mongo-tools: {what}")


# A database with all that there is.

# JSON does not distinguish them; this is the one that the tools read from it.
NOT_A_NUMBER = struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\x7f")[0]

TYPES = [
    ("double", 1.5),
    ("not a number", NOT_A_NUMBER),
    ("infinity", float("-inf")),
    ("minus zero", -0.0),
    ("string", "grün\u0000\U0001f40d"),
    ("empty", ""),
    ("document", {"b": 1, "a": {"c": []}}),
    ("array", [1, [2, {"x": None}], "3"]),
    ("binary", Binary(b"\x00\xff", 0)),
    ("function", Binary(b"f", 1)),
    ("old binary", Binary(b"old", 2)),
    ("uuid", Binary(uuid.UUID(int=7).bytes, 4)),
    ("md5", Binary(b"m" * 16, 5)),
    ("user defined", Binary(b"u", 128)),
    ("object id", ObjectId(b"0123456789ab")),
    ("false", False),
    ("true", True),
    ("date", datetime.datetime(2026, 11, 28, 1, 2, 3, 4000)),
    ("early date", datetime.datetime(1, 1, 1)),
    ("null", None),
    ("regex", Regex("^a/b", "imsx")),
    ("reference", DBRef("c", ObjectId(b"ba9876543210"), "db")),
    ("code", Code("return 1")),
    ("code with scope", Code("return x", {"x": 1})),
    ("int", -(2**31)),
    ("timestamp", Timestamp(4294967295, 1)),
    ("empty timestamp", Timestamp(0, 0)),
    ("long", Int64(2**63 - 1)),
    ("small long", Int64(1)),
    ("decimal", Decimal128("1.10")),
    ("decimal not a number", Decimal128("NaN")),
    ("large decimal", Decimal128(decimal.Decimal("9.999999999999999999999999999999999E+6144"))),
    ("least", MinKey()),
    ("greatest", MaxKey()),
]

# Types that libraries no longer write: undefined, DBPointer, symbol. As bytes of an element each.
OLD_TYPES = {
    "undefined": b"\x06v\x00",
    "pointer": b"\x0cv\x00\x04\x00\x00\x00c.d\x000123456789ab",
    "symbol": b"\x0ev\x00\x04\x00\x00\x00sym\x00",
}

def index(name, key, **options):
    return {"key": key, "name": name, **options}


INDEXES = [
    index("ascending", {"number": 1}),
    index("descending", {"number": -1}),
    index("compound", {"number": 1, "text": -1, "list": 1}),
    index("path", {"in.side": 1}),
    index("multikey", {"list": 1}),
    index("unique", {"text": 1}, unique=True),
    index("sparse", {"sparse": 1}, sparse=True),
    index("unique and sparse", {"sparse": -1}, unique=True, sparse=True),
    index("partial", {"list": -1}, partialFilterExpression={"text": {"$gte": "5"}, "a": {"$exists": True}}),
    index("unique and partial", {"text": -1}, unique=True, partialFilterExpression={"number": {"$gt": 3}}),
    index("expiring", {"date": 1}, expireAfterSeconds=2147483647),
    index("hidden", {"hidden": 1}, hidden=True),
    index("background", {"background": 1}, background=True),
    index("engine", {"engine": 1}, storageEngine={"wiredTiger": {"configString": ""}}),
    index("numbers of other types", {"real": 1.5, "large": Int64(-1)}),
]

# Kinds that a server need not have.
FURTHER_INDEXES = [
    index("hashed", {"hash": "hashed"}),
    index("wildcard", {"$**": 1}),
    index("text", {"words": "text"}),
    index("2dsphere", {"place": "2dsphere"}),
    index("2d", {"flat": "2d"}),
]


def index_kinds():
    """The indexes above, as far as the server makes them."""
    kinds = list(INDEXES)
    for spec in FURTHER_INDEXES:
        try:
            client.trial.command("createIndexes", "c", indexes=[spec])
            kinds.append(spec)
        except OperationFailure as error:
            if "is not supported by this server" not in str(error):
                raise
    client.drop_database("trial")
    return kinds


def old_document(number, element):
    body = b"\x10_id\x00" + number.to_bytes(4, "little") + element + b"\x00"
    return RawBSONDocument((len(body) + 4).to_bytes(4, "little") + body)


def seed(database):
    db = client[database]
    db.types.insert_many([{"_id": name, "value": value} for name, value in TYPES])
    raw[database].types.insert_many([old_document(n, e) for n, e in enumerate(OLD_TYPES.values())])
    db.types.insert_many([{"_id": Int64(10)}, {"_id": 11.0}, {"_id": None}, {"_id": {"b": 1, "a": 2}}])
    db.command("createIndexes", "indexed", indexes=index_kinds())
    date = datetime.datetime(2026, 1, 1)
    db.indexed.insert_many(
        {"_id": n, "number": n % 7, "text": str(n), "list": [n, str(n)], "in": {"side": n}, "date": date}
        for n in range(500)
    )
    db.create_collection("capped", capped=True, size=100_000, max=40)
    # What was inserted first goes; the order of the rest is to stay.
    db.capped.insert_many([{"_id": (n * 17) % 50, "n": n} for n in range(50)])
    schema = {"$jsonSchema": {"required": ["x"]}}
    db.create_collection("strict", validator=schema, validationLevel="strict", validationAction="error")
    db.strict.insert_many([{"x": n} for n in range(5)])
    db.create_collection("lenient", validator={"x": {"$gt": 3}}, validationLevel="moderate", validationAction="warn")
    # A document that the validator fails, from before it was there.
    db.command("collMod", "lenient", validationLevel="off")
    db.lenient.insert_many([{"x": n} for n in range(5)])
    db.command("create", "images", changeStreamPreAndPostImages={"enabled": True})
    db.create_collection("empty")
    db.create_collection("dotted.näme")
    db["dotted.näme"].insert_one({"a": "x" * 1_000_000})
    stages = [{"$match": {"number": {"$lt": 3}}}, {"$project": {"text": 1}}]
    db.create_collection("view", viewOn="indexed", pipeline=stages)
    db.create_collection("view of the view", viewOn="view", pipeline=[])


def rows(database, *command, **arguments):
    """The rows that a command of one batch answers, as bytes."""
    as_bytes = CodecOptions(document_class=RawBSONDocument)
    batch = {"batchSize": 1000}
    reply = raw[database].command(*command, codec_options=as_bytes, cursor=batch, **arguments)
    return reply["cursor"]["firstBatch"]


def fields(document):
    return ({name: value} for name, value in document.items())


def state(database, has_uuids):
    """All that the server reports about a database, as bytes. `has_uuids`: with the collections' UUIDs."""
    db = raw[database]
    told = {}
    for info in rows(database, "listCollections"):
        name = info["name"]
        options = [info["type"], bytes(info["options"].raw)]
        if name == "system.views":
            # It stands for the views, and its UUID for the database.
            continue
        if has_uuids and info["type"] == "collection":
            options.append(info["info"]["uuid"])
        order = "_id" if info["type"] == "view" else "$natural"
        documents = [document.raw for document in db[name].find(sort=[(order, 1)])]
        indexes = []
        if info["type"] == "collection":
            # mongorestore has an index's options in an order of its own, which differs from run to run.
            listed = rows(database, "listIndexes", name)
            indexes = sorted(sorted(map(bson.encode, fields(index))) for index in listed)
        told[name] = (options, indexes, documents)
    return told


def compare(what, database, want, has_uuids=False):
    got = state(database, has_uuids)
    check(f"{what}: collections", sorted(got), sorted(want))
    for name, parts in want.items():
        for part, one, other in zip(("options", "indexes", "documents"), got[name], parts):
            check(f"{what}: number of {part} of {name}", len(one), len(other))
            for got_one, want_one in zip(one, other):
                check(f"{what}: {part} of {name}", got_one, want_one)


def metadata(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


# The checks.


def dump_and_restore():
    seed("full")
    everything, with_uuids = state("full", False), state("full", True)
    check("index kinds", len(everything["indexed"][1]), len(index_kinds()) + 1)
    check("capped documents", [bson.decode(d)["n"] for d in everything["capped"][2]], list(range(10, 50)))
    plain = scratch / "plain"
    tool("mongodump", "--db", "full", "--out", plain)
    files = metadata(plain / "full")
    for name, (options, _, documents) in everything.items():
        if options[0] == "collection":
            file = f"{name.replace('ä', '%C3%A4')}.bson"
            check(f"dumped documents of {name}", files[file], b"".join(documents))
    for database in ("copy", "other"):
        tool("mongorestore", "--nsFrom", "full.*", "--nsTo", f"{database}.*", plain)
        compare("a plain dump", database, everything)
    # Over existing data: every document is a duplicate, which is reported and harmless.
    refused = ["E11000 duplicate key", "(0 documents, ", "0 document(s) restored successfully. 592 "]
    tool("mongorestore", plain, says_more=refused)
    compare("restored over itself", "full", with_uuids, has_uuids=True)
    tool("mongorestore", "--drop", plain)
    compare("dropped and restored", "full", everything)
    if state("full", True)["indexed"][0][2] == with_uuids["indexed"][0][2]:
        fail("a restore without --preserveUUID preserves UUIDs")
    checked("plain directory")
    return plain, everything, with_uuids


def archives(everything):
    archive = scratch / "archive.gz"
    tool("mongodump", "--db", "full", "--gzip", f"--archive={archive}")
    check("magic of gzip", archive.read_bytes()[:2], b"\x1f\x8b")
    tool("mongorestore", "--gzip", f"--archive={archive}", "--nsFrom", "full.*", "--nsTo", "archived.*")
    compare("a gzip archive", "archived", everything)
    zipped = scratch / "zipped"
    tool("mongodump", "--db", "full", "--gzip", "--out", zipped)
    tool("mongorestore", "--drop", "--gzip", "--nsFrom", "full.*", "--nsTo", "archived.*", zipped)
    compare("a gzip directory", "archived", everything)
    for database in ("archived", "copy", "other"):
        client.drop_database(database)
    checked("gzip archive and directory")


def preserved_uuids(plain, with_uuids):
    remark = ["--preserveUUID used but no UUID found"]
    tool("mongorestore", "--drop", "--preserveUUID", plain, says_more=remark)
    compare("preserved UUIDs", "full", with_uuids, has_uuids=True)
    # Into a server where the collections are not.
    client.drop_database("full")
    tool("mongorestore", "--drop", "--preserveUUID", plain, says_more=remark)
    compare("preserved UUIDs of dropped collections", "full", with_uuids, has_uuids=True)
    # A collection of the UUID that has another name gets its name back.
    client.full.strict.delete_many({})
    client.admin.command("renameCollection", "full.strict", to="full.elsewhere")
    tool("mongorestore", "--drop", "--preserveUUID", "--nsInclude", "full.strict", plain)
    compare("preserved UUIDs of a renamed collection", "full", with_uuids, has_uuids=True)
    checked("--preserveUUID")


def oplog():
    """A dump with an oplog, as mongodump --oplog makes it of a member of a replica set."""
    db = client.replayed
    db.c.insert_many([{"_id": n, "a": {"list": [1, 2, 3]}} for n in range(3)])
    dump = scratch / "oplog"
    tool("mongodump", "--db", "replayed", "--out", dump)
    db.drop_collection("c")
    other = uuid.uuid4()

    def of_document(op, object, target=None, **more):
        found = {} if target is None else {"o2": {"_id": target}}
        return {"op": op, "ns": "replayed.c", "o": object, **found, **more}

    def of_command(object, **more):
        return {"op": "c", "ns": "replayed.$cmd", "o": object, **more}

    id_index = {"v": 2, "key": {"_id": 1}, "name": "_id_"}
    made = {"create": "made", "capped": True, "size": 4096, "idIndex": id_index}
    renamed = {"renameCollection": "replayed.made", "to": "replayed.renamed", "stayTemp": False, "dropTarget": False}
    transaction = [{"op": "i", "ns": "replayed.renamed", "o": {"_id": n}} for n in (2, 3)]
    part = {"sa": {"slist": {"a": True, "l": 2, "u1": "new"}}}
    entries = [
        {"op": "n", "ns": "", "o": {"msg": "periodic noop"}},
        of_document("i", {"_id": 3, "t": Timestamp(0, 0)}, 3),
        # What the dump has already.
        of_document("i", {"_id": 0, "again": True}),
        of_document("u", {"$v": 2, "diff": {"d": {"a": False}, "i": {"b": 1}}}, 1),
        of_document("u", {"$v": 2, "diff": part}, 2),
        of_document("u", {"_id": 3, "whole": 1}, 3, b=True),
        of_document("d", {"_id": 0}),
        of_command(made, ui=Binary.from_uuid(other)),
        {"op": "i", "ns": "replayed.made", "ui": Binary.from_uuid(other), "o": {"_id": 1}},
        of_command(renamed),
        {"op": "c", "ns": "admin.$cmd", "o": {"applyOps": transaction}},
        of_command({"createIndexes": "renamed", "v": 2, "key": {"x": 1}, "name": "x_1"}),
        of_command({"create": "gone"}),
        of_command({"drop": "gone"}),
    ]
    start = 1_700_000_000
    origin = {"t": Int64(1), "h": Int64(0), "v": 2, "wall": datetime.datetime(2026, 1, 1)}
    stamped = [{"ts": Timestamp(start, n + 1), **origin, **entry} for n, entry in enumerate(entries)]
    (dump / "oplog.bson").write_bytes(b"".join(bson.encode(entry) for entry in stamped))

    def replayed():
        return {name: list(db[name].find()) for name in sorted(db.list_collection_names())}

    want = {
        "c": [
            {"_id": 1, "b": 1},
            {"_id": 2, "a": {"list": [1, "new"]}},
            {"_id": 3, "whole": 1},
        ],
        "renamed": [{"_id": 1}, {"_id": 2}, {"_id": 3}],
    }
    tool("mongorestore", "--oplogReplay", dump)
    check("the replayed oplog", replayed(), want)
    check("its indexes", sorted(db.renamed.index_information()), ["_id_", "x_1"])
    check("its options", db.renamed.options(), {"capped": True, "size": 4096})
    db.drop_collection("renamed")
    tool("mongorestore", "--drop", "--preserveUUID", "--oplogReplay", dump)
    check("the oplog with UUIDs", replayed(), want)
    listed = db.command("listCollections", filter={"name": "renamed"})["cursor"]["firstBatch"]
    check("the UUID in the oplog", listed[0]["info"]["uuid"], Binary.from_uuid(other))
    # Up to a time: before the first delete.
    client.drop_database("replayed")
    tool("mongorestore", "--oplogReplay", "--oplogLimit", "1700000000:7", dump)
    check("the oplog up to a limit", [d["_id"] for d in db.c.find(sort=[("_id", 1)])], [0, 1, 2, 3])
    check("a replaced document", db.c.find_one({"_id": 0}), {"_id": 0, "again": True})
    if not is_set:
        # A standalone has no oplog to be dumped.
        tool("mongodump", "--oplog", "--out", scratch / "none", fails="error getting oplog start")
    checked("--oplogReplay")


def json_round_trip(everything):
    for collection in ("types", "indexed"):
        file = scratch / f"{collection}.json"
        exported = ["--db", "full", "--collection", collection, "--jsonFormat", "canonical"]
        tool("mongoexport", *exported, "--out", file)
        lines = file.read_text().splitlines()
        check(f"exported lines of {collection}", len(lines), len(everything[collection][2]))
        tool("mongoimport", "--db", "imported", "--collection", collection, "--maintainInsertionOrder", file)
        got = [document.raw for document in raw.imported[collection].find(sort=[("$natural", 1)])]
        check(f"number of imported {collection}", len(got), len(lines))
        for got_one, want_one in zip(got, everything[collection][2]):
            check(f"imported {collection}", got_one, want_one)
    # An array, changed on the way in.
    whole = scratch / "array.json"
    query = '{"_id": {"$lt": 5}}'
    exported = ["--db", "full", "--collection", "indexed", "--jsonArray", "--query", query, "--sort", '{"_id": -1}']
    tool("mongoexport", *exported, "--out", whole)
    check("ids in the array", [d["_id"] for d in json.loads(whole.read_text())], [4, 3, 2, 1, 0])
    target = client.imported.merged
    target.insert_many([{"_id": n, "kept": n} for n in range(2)])
    for mode, ids, kept in (("merge", 5, 2), ("upsert", 5, 0), ("delete", 0, 0)):
        imported = ["--db", "imported", "--collection", "merged", "--jsonArray", "--mode", mode]
        tool("mongoimport", *imported, whole)
        check(f"documents after {mode}", target.count_documents({}), ids)
        check(f"old fields after {mode}", target.count_documents({"kept": {"$exists": True}}), kept)
    checked("JSON")


def csv_round_trip():
    rows = [{"_id": n, "name": f'a, "{n}"\nb', "x": {"y": n * 1.5}, "flag": n % 2 == 0} for n in range(200)]
    client.imported.rows.insert_many(rows)
    file = scratch / "rows.csv"
    fields = "_id,name,x.y,flag"
    exported = ["--db", "imported", "--collection", "rows", "--type", "csv", "--fields", fields]
    tool("mongoexport", *exported, "--sort", '{"_id": 1}', "--out", file)
    with open(file, newline="") as text:
        got = list(csv.reader(text))
    check("the header", got[0], fields.split(","))
    check("rows", [row[1] for row in got[1:]], [row["name"] for row in rows])
    typed = "_id.int32(),name.string(),x.y.double(),flag.boolean()"
    body = scratch / "body.csv"
    body.write_text(file.read_text().split("\n", 1)[1])
    imported = ["--db", "imported", "--collection", "back", "--type", "csv"]
    tool("mongoimport", *imported, "--columnsHaveTypes", "--fields", typed, "--maintainInsertionOrder", body)
    check("imported rows", list(client.imported.back.find()), rows)
    tool("mongoimport", *imported, "--drop", "--headerline", file)
    check("rows with a header", client.imported.back.count_documents({"x.y": {"$type": "number"}}), len(rows))
    client.drop_database("imported")
    checked("CSV")


def files():
    content = os.urandom(5_000_000)
    source, target = scratch / "large", scratch / "fetched"
    source.write_bytes(content)
    tool("mongofiles", "--db", "files", "put", "large", "--local", source)
    tool("mongofiles", "--db", "files", "put", "small", "--local", __file__)
    listed = tool("mongofiles", "--db", "files", "list").split("\n")
    size = os.path.getsize(__file__)
    check("listed files", sorted(filter(None, listed)), [f"large\t{len(content)}", f"small\t{size}"])
    check("found files", tool("mongofiles", "--db", "files", "search", "mal").strip(), f"small\t{size}")
    tool("mongofiles", "--db", "files", "get", "large", "--local", target)
    check("the file", target.read_bytes() == content, True)
    tool("mongofiles", "--db", "files", "delete", "large")
    check("files left", tool("mongofiles", "--db", "files", "list").strip(), f"small\t{size}")
    check("chunks left", client.files.fs.chunks.distinct("n"), [0])
    checked("mongofiles")


def figures():
    """Runs mongostat and mongotop beside work that counts for each of their columns."""
    ended = threading.Event()

    def work():
        c = MongoClient(uri).watched.c
        while not ended.is_set():
            c.insert_many([{"x": n} for n in range(10)])
            c.update_many({}, {"$inc": {"x": 1}})
            list(c.find(batch_size=2))
            c.delete_many({})
            c.database.command("ping")

    worker = threading.Thread(target=work)
    client.watched.c.insert_one({"x": 0})
    worker.start()
    try:
        # It finds a set's other members after the first row, and has nothing of a member that has not answered yet.
        options = ["--discover", "--rowcount", 6] if is_set else ["--rowcount", 1]
        stat = {}
        for line in tool("mongostat", *options, "--json", 1).splitlines():
            stat |= {name: row for name, row in json.loads(line).items() if "insert" in row}
        check("the hosts", sorted(stat), sorted(f"{host}:{port}" for host, port in client.nodes))
        row = stat["%s:%d" % client.address]
        of_set = {"host", "set", "repl"} if is_set else set()
        for name, other in stat.items():
            check(f"the set of {name}", other.get("set"), "rs0" if is_set else None)
            # It does not know how servers of today tell that they are the primary.
            role = "SLV" if other is row else "SEC"
            check(f"the role of {name}", other.get("repl"), role if is_set else None)
        of_work = {"insert", "query", "update", "delete", "getmore", "command", "conn"}
        of_process = {"vsize", "res", "net_in", "net_out"}
        check("columns of mongostat", set(row), of_work | of_process | of_set | {"flushes", "qrw", "arw", "time"})
        for name in of_work | of_process:
            figure = re.match(r"\*?([\d.]+)", row[name])
            if not figure or float(figure.group(1)) <= 0:
                fail(f"mongostat shows no {name}: {row}")
        top = json.loads(tool("mongotop", "--rowcount", 1, "--json", 1).splitlines()[0])
        watched = top["totals"]["watched.c"]
        for kind in ("total", "read", "write"):
            if watched[kind]["time"] <= 0 or watched[kind]["count"] <= 0:
                fail(f"mongotop shows no {kind}: {watched}")
        # In milliseconds, each rounded by itself.
        parts = watched["read"]["time"] + watched["write"]["time"]
        if not 0 <= watched["total"]["time"] - parts <= 1:
            fail(f"times of mongotop: {watched}")
    finally:
        ended.set()
        worker.join()
    checked("mongostat and mongotop")


def dumped_text(plain, everything):
    def bsondump(*arguments):
        ran = subprocess.run([programs / "bsondump", *arguments], capture_output=True, text=True, timeout=60)
        found = len(everything["types"][2])
        if ran.returncode or f"{found} objects found" not in ran.stderr:
            fail(f"bsondump: status {ran.returncode}", ran.stderr)
        return ran.stdout

    file = plain / "full" / "types.bson"
    lines = bsondump(file).splitlines()
    exported = (scratch / "types.json").read_text().splitlines()
    check("bsondump", lines, exported)
    check("the first", json.loads(lines[0]), {"_id": "double", "value": {"$numberDouble": "1.5"}})
    debug = bsondump("--type", "debug", file)
    check("objects by their types", len(re.findall("^--- new object ---$", debug, re.M)), len(lines))
    checked("bsondump")


plain, everything, with_uuids = dump_and_restore()
archives(everything)
preserved_uuids(plain, with_uuids)
oplog()
json_round_trip(everything)
csv_round_trip()
files()
figures()
dumped_text(plain, everything)
subprocess.run(["rm", "-rf", scratch], check=True)
print(made)
