"""A pytest plugin for MongoEngine's tests: connections to the default port go to the port of KAURI_URI."""

import os
import urllib.parse

import pymongo

USUAL = 27017
port = urllib.parse.urlsplit(os.environ["KAURI_URI"]).port
connect = pymongo.MongoClient.__init__


def moved(host):
    if isinstance(host, list):
        return [moved(one) for one in host]
    return host.replace(f"localhost:{USUAL}", f"localhost:{port}") if isinstance(host, str) else host


def connect_to_port(self, host=None, port_given=None, *arguments, **options):
    given = options.pop("port", port_given)
    connect(self, moved(host), port if given == USUAL else given, *arguments, **options)


pymongo.MongoClient.PORT = port
pymongo.MongoClient.__init__ = connect_to_port
