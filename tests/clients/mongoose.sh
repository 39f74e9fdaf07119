#!/usr/bin/env bash
# mongoose, with the tests in packages of its plugins and those beside this script. Exactly the tests of
# odm/mongoose.txt must pass.
#   mongoose.sh --update   rewrites the list
source "$(dirname "$0")/lib.sh"
out=$("$python" "$here/odm/suite.py" "$installed" mongoose "$@") || die "$out"
echo "$out" | sed '$d'
exactly 230 "$(tail -1 <<<"$out")"
