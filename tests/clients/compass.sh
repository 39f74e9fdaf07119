#!/usr/bin/env bash
# The commands of MongoDB Compass, to a server alone.
source "$(dirname "$0")/lib.sh"
export NODE_PATH=$installed/node/node_modules
out=$(with_server -- node --test --test-reporter=tap "$here/compass/commands.test.js") || die "$out"
count() { awk -v what="$1" '$1 == "#" && $2 == what { print $3 }' <<<"$out"; }
[ "$(count fail)$(count skipped)$(count todo)$(count cancelled)" = 0000 ] || die "$out"
exactly 12 "$(count pass)"
