#!/usr/bin/env bash
# MongoEngine's own suite, as its source distribution carries it: the tests of odm/mongoengine.txt pass, and no others.
#   mongoengine.sh --update   writes the list anew
source "$(dirname "$0")/lib.sh"
out=$("$python" "$here/odm/suite.py" "$installed" mongoengine "$@") || die "$out"
echo "$out" | sed '$d'
exactly 93 "$(tail -1 <<<"$out")"
