"""A pytest plugin for Beanie's tests: it requests only indexes that this server supports.

Each test of Beanie sets up all models of the suite. Three of them have a text index, which the server rejects. Without
this plugin no test would run.
"""

from pymongo.asynchronous.collection import AsyncCollection

create_indexes = AsyncCollection.create_indexes


async def create_indexes_without_text(self, indexes, *arguments, **options):
    kept = [index for index in indexes if "text" not in dict(index.document["key"]).values()]
    return await create_indexes(self, kept, *arguments, **options) if kept else []


AsyncCollection.create_indexes = create_indexes_without_text
