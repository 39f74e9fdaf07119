#!/usr/bin/env bash
# The oplog of a set of three processes: pymongo reads and follows it, mongosh reports it, mongodump and mongorestore use it.
source "$(dirname "$0")/lib.sh"
export PYTHONPATH=$here:$here/set
KAURI_HOME=$(mktemp -d)
export KAURI_HOME
trap 'rm -rf "$KAURI_HOME"' EXIT
mongosh=$installed/node/node_modules/mongosh/bin/mongosh.js
out=$(set_namespaces "$python" "$here/set/oplog.py" "$mongosh" "$installed/mongo-tools") || die "$out"
sed '$d' <<<"$out"
exactly 32 "$(tail -1 <<<"$out")"
