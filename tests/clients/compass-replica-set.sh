#!/usr/bin/env bash
# The commands of MongoDB Compass to a replica set, whose reads go to the primary, then to the secondaries.
source "$(dirname "$0")/lib.sh"
export NODE_PATH=$installed/node/node_modules
run='for mode in primary secondary; do
  KAURI_URI="$KAURI_URI&readPreference=$mode" node --test --test-reporter=tap "$1" || exit
  node -e "const { MongoClient } = require(\"mongodb\"), client = new MongoClient(process.env.KAURI_URI); \
    client.db(\"shop\").dropDatabase({ writeConcern: { w: 3 } }).finally(() => client.close())" || exit
done'
out=$(with_set -- bash -c "$run" compass "$here/compass/commands.test.js") || die "$out"
count() { awk -v what="$1" '$1 == "#" && $2 == what { sum += $3 } END { print sum }' <<<"$out"; }
[ "$(count fail)$(count skipped)$(count todo)$(count cancelled)" = 0000 ] || die "$out"
exactly 24 "$(count pass)"
