#!/usr/bin/env bash
# A session of mongosh over every command, its answers checked.
#   mongosh.sh --update   writes the session's answers anew
source "$(dirname "$0")/lib.sh"
KAURI_HOME=$(mktemp -d)
export KAURI_HOME
trap 'rm -rf "$KAURI_HOME"' EXIT
mongosh=$installed/node/node_modules/mongosh/bin/mongosh.js
out=$(with_server --setParameter enableTestCommands=1 -- \
  "$python" "$here/mongosh/replay.py" "$mongosh" "$@") || die "$out"
exactly 105 "$out"
