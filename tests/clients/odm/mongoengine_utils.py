"""Replaces the module tests/utils.py, which MongoEngine's tests import and its source distribution lacks."""

import unittest

from mongoengine import connect
from mongoengine.connection import disconnect_all, get_db

DATABASE = "mongoenginetest"


class MongoDBTestCase(unittest.TestCase):
    """A test case with a connection to an empty database."""

    @classmethod
    def setUpClass(cls):
        disconnect_all()
        cls._connection = connect(db=DATABASE)
        cls._connection.drop_database(DATABASE)
        cls.db = get_db()

    @classmethod
    def tearDownClass(cls):
        cls._connection.drop_database(DATABASE)
        disconnect_all()
