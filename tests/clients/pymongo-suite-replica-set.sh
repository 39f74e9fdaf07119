#!/usr/bin/env bash
# The Python driver's own test suite against a replica set of three: the tests of pymongo/suite-replica-set.txt must pass.
#   pymongo-suite-replica-set.sh --update   adds the tests that pass now to the list
source "$(dirname "$0")/lib.sh"
export PYTHONPATH=$here:$here/pymongo
out=$("$python" "$here/pymongo/suite.py" "$installed" replica-set "$@") || die "$out"
echo "$out" | sed '$d'
exactly 849 "$(tail -1 <<<"$out")"
