#!/usr/bin/env bash
# Specification tests with the Node.js driver against a replica set of three: those of node/suite-replica-set.txt must pass.
#   node-replica-set.sh --update   adds the tests that pass now to the list
source "$(dirname "$0")/lib.sh"
export NODE_PATH=$installed/node/node_modules
out=$("$python" "$here/node/suite.py" "$installed" "$@") || die "$out"
echo "$out" | sed '$d'
exactly 411 "$(tail -1 <<<"$out")"
