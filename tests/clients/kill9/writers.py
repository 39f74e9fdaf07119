"""Threads that change a collection by every kind of write until the server is dead."""

import random
import threading

from pymongo import InsertOne, UpdateOne, WriteConcern
from pymongo.errors import ConnectionFailure, PyMongoError

import ring
from model import NEXT_VERSION


class Worker(threading.Thread):
    """Changes a collection until the server is gone."""

    def __init__(self, name, collection, model, rng):
        super().__init__(daemon=True)
        self.owner = name
        self.model = model
        self.rng = random.Random(rng.random())
        self.journaled = collection.with_options(write_concern=WriteConcern(w=1, j=True))
        self.plain = collection
        self.failure = None

    def run(self):
        try:
            while True:
                self.collection = self.rng.choice([self.plain, self.plain, self.journaled])
                self.work()
        except ConnectionFailure:
            pass
        except (PyMongoError, AssertionError) as error:
            self.failure = error

    def work(self):
        raise NotImplementedError


class Writer(Worker):
    """Changes the documents that carry its name; no other writer changes them."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.serial = 0
        self.ways = [self.insert_one, self.insert_many, self.update_one, self.update_many]
        self.ways += [self.replace_one, self.find_and_modify, self.delete_one, self.delete_many, self.bulk]

    def work(self):
        way = self.rng.choice(self.ways)
        (self.delete_many if self.has_many() else way)()

    def all_mine(self):
        """This writer's keys that are there."""
        with self.model.lock:
            keys = [k for k, v in self.model.versions.items() if v is not None]
        return [k for k in keys if k.startswith(self.owner + ":")]

    def has_many(self):
        return len(self.all_mine()) > self.model.documents_each_max

    def mine(self, count):
        """Some of them."""
        keys = self.all_mine()
        return self.rng.sample(keys, min(count, len(keys)))

    def new_keys(self, count):
        keys = []
        while len(keys) < count:
            self.serial += 1
            key = f"{self.owner}:{self.serial}"
            if self.model.versions.get(key) is None:
                keys.append(key)
        return keys

    def next_version(self, key):
        return self.model.versions[key] + 1

    def change(self, changes, send, expected, ordered_insert=False):
        """Sends a change; `send` answers how many documents it changed."""
        if not changes:
            return
        self.model.announce(changes, ordered_insert)
        got = send()
        assert got == expected, f"{got} documents changed, not {expected}"
        self.model.settle(changes)

    def insert_one(self):
        [key] = self.new_keys(1)
        doc = self.model.document(key, 0)
        self.change({key: 0}, lambda: bool(self.collection.insert_one(doc).inserted_id), True)

    def insert_many(self):
        changes = dict.fromkeys(self.new_keys(self.rng.randint(2, 40)), 0)
        docs = [self.model.document(k, 0) for k in changes]
        send = lambda: len(self.collection.insert_many(docs).inserted_ids)
        self.change(changes, send, len(docs), ordered_insert=True)

    def update_one(self):
        for key in self.mine(1):
            version = self.next_version(key)
            update = {"$set": self.model.document(key, version)}
            send = lambda: self.collection.update_one({"_id": key}, update).modified_count
            self.change({key: version}, send, 1)

    def update_many(self):
        keys = self.mine(30)
        query = {"_id": {"$in": keys}}
        send = lambda: self.collection.update_many(query, NEXT_VERSION).modified_count
        self.change({k: self.next_version(k) for k in keys}, send, len(keys))

    def delete_many(self):
        keys = self.mine(10)
        send = lambda: self.collection.delete_many({"_id": {"$in": keys}}).deleted_count
        self.change(dict.fromkeys(keys), send, len(keys))

    def replace_one(self):
        for key in self.mine(1):
            version = self.next_version(key)
            doc = self.model.document(key, version)
            send = lambda: self.collection.replace_one({"head": f"{key}/{version - 1}"}, doc).modified_count
            self.change({key: version}, send, 1)

    def find_and_modify(self):
        for key in self.mine(1):
            version = self.next_version(key)
            update = {"$set": self.model.document(key, version)}
            send = lambda: self.collection.find_one_and_update({"_id": key}, update) is not None
            self.change({key: version}, send, True)

    def delete_one(self):
        for key in self.mine(1):
            send = lambda: self.collection.delete_one({"_id": key}).deleted_count
            self.change({key: None}, send, 1)

    def bulk(self):
        old, new = self.mine(10), self.new_keys(10)
        changes = {k: self.next_version(k) for k in old} | dict.fromkeys(new, 0)
        operations = [UpdateOne({"_id": k}, {"$set": self.model.document(k, changes[k])}) for k in old]
        operations += [InsertOne(self.model.document(k, 0)) for k in new]

        def send():
            result = self.collection.bulk_write(operations)
            return result.modified_count + result.inserted_count

        self.change(changes, send, len(operations))


class Inserter(Worker):
    """Inserts the documents of the serials that it is given."""

    def work(self):
        serials = self.model.announce(self.owner, self.rng.choice([1, 1, self.rng.randint(2, 20)]))
        docs = [ring.document(serial) for serial in serials]
        if len(docs) == 1:
            self.collection.insert_one(docs[0])
        else:
            self.collection.insert_many(docs)
        self.model.settle(serials)
