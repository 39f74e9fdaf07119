#!/usr/bin/env bash
# A mongosh session over most commands, with its output checked.
#   mongosh.sh --update   rewrites the session's output
source "$(dirname "$0")/lib.sh"
KAURI_HOME=$(mktemp -d)
export KAURI_HOME
trap 'rm -rf "$KAURI_HOME"' EXIT
mongosh=$installed/node/node_modules/mongosh/bin/mongosh.js
out=$(with_server --setParameter enableTestCommands=1 -- \
  "$python" "$here/mongosh/replay.py" "$mongosh" "$@") || die "$out"
exactly 105 "$out"
