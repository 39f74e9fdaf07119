"""Expensive requests: small to send, but slow or memory-hungry.

`EXPENSIVE` and `HUNGRY` are lists of (name, command), for the database that `fill` has filled.
"""

import bson
from bson.son import SON

# A document with this many elements in an array is large but may be stored.
ELEMENTS = 20_000


def fill(db):
    db.drop_collection("docs")
    db.docs.insert_many(
        {"_id": n, "a": n % 10, "text": "x" * 50, "list": list(range(50)), "sub": {"k": n, "v": [n, n + 1]}}
        for n in range(5_000)
    )
    db.drop_collection("one")
    db.one.insert_one({"_id": 0})
    db.drop_collection("large")
    db.large.insert_many({"_id": n, "list": [{"k": i, "v": i % 7} for i in range(ELEMENTS)]} for n in range(5))
    db.drop_collection("wide")
    db.wide.insert_one({"_id": 0, **{f"f{i}": i for i in range(30_000)}})
    db.drop_collection("values")
    db.values.insert_many({"_id": n, "v": "y" * 200_000} for n in range(200))
    db.docs.create_index("a")


def aggregate(collection, *stages, **options):
    return SON([("aggregate", collection), ("pipeline", list(stages)), ("cursor", {}), *options.items()])


def compute(expression):
    return aggregate("one", {"$project": {"r": expression}})


def find(collection, filter, **options):
    return SON([("find", collection), ("filter", filter), *options.items()])


def update(collection, q, u, **options):
    return SON([("update", collection), ("updates", [{"q": q, "u": u, **options}])])


def ranged(count):
    return {"$range": [0, count]}


MILLION = ranged(1_000_000)


def looping(body, count=1_000_000):
    return {"$map": {"input": ranged(count), "in": body}}


def nested_loops(levels, body):
    for _ in range(levels):
        body = {"$size": looping(body, 10_000)}
    return body


def expressions():
    yield "filter with in", {"$filter": {"input": MILLION, "cond": {"$in": ["$$this", MILLION]}}}
    yield "sum of ranges", looping({"$sum": ranged(100)})
    yield "nested maps", nested_loops(3, 1)
    yield "reduce concatArrays", {
        "$reduce": {"input": ranged(100_000), "initialValue": [], "in": {"$concatArrays": ["$$value", ["$$this"]]}}
    }
    yield "reduce concat", {
        "$reduce": {"input": ranged(1_000_000), "initialValue": "", "in": {"$concat": ["$$value", "abc"]}}
    }
    yield "reduce mergeObjects", {
        "$reduce": {
            "input": ranged(30_000),
            "initialValue": {},
            "in": {"$mergeObjects": ["$$value", {"$arrayToObject": [[[{"$toString": "$$this"}, 1]]]}]},
        }
    }
    yield "set difference", looping({"$setDifference": [ranged(1000), ranged(500)]}, 100_000)
    yield "set is subset", looping({"$setIsSubset": [ranged(1000), ranged(2000)]}, 100_000)
    yield "sort arrays", looping({"$size": {"$sortArray": {"input": ranged(10_000), "sortBy": -1}}}, 10_000)
    yield "index of array", looping({"$indexOfArray": [ranged(10_000), -1]}, 100_000)
    yield "element at the end", looping({"$arrayElemAt": [ranged(10_000), -1]}, 100_000)
    yield "reverse", looping({"$size": {"$reverseArray": ranged(10_000)}}, 100_000)
    yield "zip", looping({"$size": {"$zip": {"inputs": [ranged(10_000)] * 5}}}, 10_000)
    yield "split", {
        "$let": {
            "vars": {"long": {"$reduce": {"input": ranged(100_000), "initialValue": "", "in": {"$concat": ["$$value", "a,"]}}}},
            "in": looping({"$size": {"$split": ["$$long", ","]}}, 10_000),
        }
    }
    yield "regex", looping({"$regexMatch": {"input": "a" * 2_000, "regex": "(a+)+b"}}, 10_000)
    yield "date strings", looping({"$dateToString": {"date": {"$toDate": {"$toLong": "$$this"}}}}, 10_000_000)
    yield "object to array", looping(
        {"$size": {"$objectToArray": {"$arrayToObject": [{"$map": {"input": ranged(1000), "in": [{"$toString": "$$this"}, 1]}}]}}},
        10_000,
    )
    yield "all elements true", looping({"$allElementsTrue": [[{"$size": ranged(10_000)}]]}, 100_000)
    yield "compare long arrays", looping({"$eq": [ranged(10_000), ranged(10_000)]}, 100_000)
    yield "switch of many", looping({"$switch": {"branches": [{"case": {"$eq": ["$$this", -n]}, "then": n} for n in range(1, 500)], "default": 0}})
    yield "wide object", looping({f"f{n}": "$$this" for n in range(1_000)}, 100_000)
    yield "slices", looping({"$size": {"$slice": [ranged(10_000), 1, 9_000]}}, 100_000)
    yield "string bytes", looping({"$strLenCP": {"$toUpper": "abcdefghij" * 1_000}}, 100_000)
    yield "replace all", looping({"$strLenCP": {"$replaceAll": {"input": "ab" * 5_000, "find": "a", "replacement": "cc"}}}, 100_000)


def expensive():
    for name, expression in expressions():
        yield name, compute(expression)
    yield "wide rename", update("wide", {}, {"$rename": {f"f{i}": f"g{i}" for i in range(30_000)}})
    yield "wide unset", update("wide", {"_id": -1, "$expr": compute_true()}, {"$unset": {f"f{i}": 1 for i in range(30_000)}})
    yield "array filters of many", update(
        "large",
        {},
        {"$set": {"list.$[e].w": 1}},
        multi=True,
        arrayFilters=[{"$or": [{"e.k": -n} for n in range(1, 20_000)]}],
    )
    yield "pull with many", update("large", {}, {"$pull": {"list": {"$or": [{"k": -n} for n in range(1, 20_000)]}}}, multi=True)
    yield "add to set", update("large", {"_id": 0}, {"$addToSet": {"list": {"$each": [{"k": -n} for n in range(20_000)]}}})
    yield "push and sort", update("large", {}, {"$push": {"list": {"$each": [{"k": n} for n in range(20_000)], "$sort": {"k": -1, "v": 1}}}}, multi=True)
    yield "project elemMatch of many", find(
        "large", {}, projection={"list": {"$elemMatch": {"$or": [{"k": -n} for n in range(1, 20_000)]}}}
    )
    yield "elemMatch of many", find("large", {"list": {"$elemMatch": {"$or": [{"k": -n} for n in range(1, 20_000)]}}})
    yield "all of many", find("large", {"list.k": {"$all": list(range(-20_000, 0))}})
    yield "regexes of many", find("docs", {"text": {"$in": [bson.Regex(f"(x+)+{n}$") for n in range(100)]}})
    yield "where every field", find("docs", {"$or": [{"sub.v": {"$elemMatch": {"$eq": -n}}} for n in range(5_000)]})
    yield "expr loops", find("docs", {"$expr": {"$gt": [{"$size": {"$filter": {"input": ranged(100_000), "cond": {"$eq": ["$$this", "$a"]}}}}, 5]}})
    yield "json schema", find(
        "large",
        {"$jsonSchema": {"properties": {"list": {"items": {"anyOf": [{"properties": {"k": {"maximum": -n}}} for n in range(1, 2_000)]}}}}},
    )
    yield "unique items", find("large", {"$nor": [{"$jsonSchema": {"properties": {"list": {"uniqueItems": True}}}}] * 50})
    yield "lookup everything", aggregate(
        "docs", {"$lookup": {"from": "docs", "pipeline": [], "as": "all"}}, {"$unwind": "$all"}, {"$count": "n"}
    )
    yield "lookup with expr", aggregate(
        "docs",
        {"$lookup": {"from": "docs", "let": {"k": "$sub.k"}, "pipeline": [{"$match": {"$expr": {"$gt": ["$a", "$$k"]}}}], "as": "all"}},
        {"$count": "n"},
    )
    yield "graph lookup", aggregate(
        "docs",
        {"$graphLookup": {"from": "docs", "startWith": "$sub.v", "connectFromField": "sub.v", "connectToField": "_id", "as": "all"}},
        {"$count": "n"},
    )
    yield "unwind of unwind", aggregate(
        "large", {"$unwind": "$list"}, {"$lookup": {"from": "large", "pipeline": [], "as": "l"}}, {"$unwind": "$l"}, {"$unwind": "$l.list"}, {"$count": "n"}
    )
    yield "group of many accumulators", aggregate(
        "docs", {"$group": {"_id": "$_id", **{f"f{n}": {"$sum": "$a"} for n in range(20_000)}}}, {"$count": "n"}
    )
    yield "windows", aggregate(
        "docs",
        {
            "$setWindowFields": {
                "sortBy": {"_id": 1},
                "output": {f"f{n}": {"$push": "$a", "window": {"documents": [-2_000, 2_000]}} for n in range(20)},
            }
        },
        {"$count": "n"},
    )
    yield "densify", aggregate("docs", {"$densify": {"field": "d", "range": {"step": 1, "bounds": [0, 400_000]}}}, {"$count": "n"})
    yield "fill", aggregate(
        "docs", {"$fill": {"sortBy": {"_id": 1}, "output": {f"{m}{n}": {"method": m} for n in range(500) for m in ["linear", "locf"]}}}, {"$count": "n"}
    )
    for name, arguments in [("derivative", {"input": "$_id"}), ("integral", {"input": "$_id"})]:
        window = {f"${name}": arguments, "window": {"documents": [-2_000, 2_000]}}
        yield f"windows of {name}", aggregate(
            "docs", {"$setWindowFields": {"sortBy": {"_id": 1}, "output": {f"f{n}": window for n in range(20)}}}, {"$count": "n"}
        )
    for name, arguments in [("expMovingAvg", {"input": "$_id", "N": 10}), ("linearFill", "$none"), ("locf", "$none")]:
        yield f"windows of {name}", aggregate(
            "docs", {"$setWindowFields": {"sortBy": {"_id": 1}, "output": {f"f{n}": {f"${name}": arguments} for n in range(500)}}}, {"$count": "n"}
        )
    yield "bucket auto", aggregate(
        "docs", {"$unwind": "$list"}, {"$bucketAuto": {"groupBy": {"$size": ranged(10_000)}, "buckets": 10}}
    )
    yield "facets", aggregate(
        "docs", {"$facet": {f"f{n}": [{"$project": {"r": {"$size": ranged(1_000)}}}, {"$count": "n"}] for n in range(100)}}
    )
    yield "wide object of fields", aggregate("docs", {"$project": {f"f{n}": {"$add": ["$a", n]} for n in range(20_000)}}, {"$count": "n"})
    yield "sort by expression", aggregate(
        "docs", {"$unwind": "$list"}, {"$addFields": {"r": {"$size": ranged(1_000)}}}, {"$sort": {"r": 1, "list": -1}}, {"$count": "n"}
    )
    yield "distinct", SON([("distinct", "large"), ("key", "list"), ("query", {"$expr": {"$gt": [{"$size": {"$filter": {"input": MILLION, "cond": {"$in": ["$$this", MILLION]}}}}, 0]}})])
    yield "count", SON([("count", "docs"), ("query", {"$expr": {"$gt": [nested_loops(2, 1), 0]}})])
    yield "delete", SON([("delete", "docs"), ("deletes", [{"q": {"$expr": {"$lt": [nested_loops(2, 1), 0]}}, "limit": 0}])])


def compute_true():
    return {"$gt": [nested_loops(2, 1), 0]}


def hungry():
    large = ranged(4_000_000)
    yield "set union of ranges", compute({"$size": {"$setUnion": [ranged(6_000_000 + n) for n in range(25)]}})
    yield "many ranges", compute(
        {"$let": {"vars": {f"v{n}": {"$range": [n, 4_000_000]} for n in range(70)}, "in": {"$size": "$$v0"}}}
    )
    yield "facets of everything", aggregate("values", {"$facet": {f"f{n}": [{"$match": {"_id": {"$gte": -n}}}] for n in range(300)}})
    yield "group everything", aggregate("values", {"$group": {"_id": None, "all": {"$push": "$$ROOT"}}}, {"$count": "n"})
    yield "lookup of everything", aggregate("values", {"$lookup": {"from": "values", "pipeline": [], "as": "all"}}, {"$count": "n"})
    yield "sort of everything", aggregate(
        "values", {"$lookup": {"from": "values", "pipeline": [{"$limit": 20}], "as": "all"}}, {"$unwind": "$all"}, {"$sort": {"all.v": 1}}, {"$limit": 1}
    )
    yield "concatenated", compute({"$size": {"$concatArrays": [large] * 20}})
    yield "large replies", find("values", {}, batchSize=10_000)
    yield "arrays in arrays", compute({"$let": {"vars": {"l": large}, "in": {"$size": [["$$l"] * 30]}}})
    yield "windows of everything", aggregate(
        "values",
        {"$setWindowFields": {"sortBy": {"_id": 1}, "output": {"all": {"$push": "$v", "window": {"documents": ["unbounded", "current"]}}}}},
        {"$count": "n"},
    )
    yield "bucket auto of everything", aggregate("values", {"$bucketAuto": {"groupBy": "$_id", "buckets": 2, "output": {"all": {"$push": "$v"}}}}, {"$count": "n"})
    yield "add to set", aggregate("docs", {"$unwind": "$list"}, {"$group": {"_id": None, "all": {"$addToSet": {"a": "$list", "b": "$_id"}}}}, {"$count": "n"})


EXPENSIVE = list(expensive())
HUNGRY = list(hungry())
