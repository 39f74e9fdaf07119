#!/usr/bin/env bash
# The Python driver's own test suite from its source distribution: the tests of pymongo/suite.txt must pass.
#   pymongo-suite.sh --update   adds the tests that pass now to the list
source "$(dirname "$0")/lib.sh"
export PYTHONPATH=$here:$here/pymongo
out=$("$python" "$here/pymongo/suite.py" "$installed" standalone "$@") || die "$out"
echo "$out" | sed '$d'
exactly 1352 "$(tail -1 <<<"$out")"
