#!/usr/bin/env bash
# MongoEngine's own test suite from its source distribution. Exactly the tests of odm/mongoengine.txt must pass.
#   mongoengine.sh --update   rewrites the list
source "$(dirname "$0")/lib.sh"
out=$("$python" "$here/odm/suite.py" "$installed" mongoengine "$@") || die "$out"
echo "$out" | sed '$d'
exactly 93 "$(tail -1 <<<"$out")"
