#!/usr/bin/env bash
# The smoke suite of the Python driver, and messages of the maximum size, compressed messages and files. Each runs over
# TCP and over the Unix domain socket.
source "$(dirname "$0")/lib.sh"
ran=$(with_server -- "$python" "$here/pymongo/smoke.py" | tail -1)
exactly 57 "$ran"
ran=$(with_server -- "$python" "$here/pymongo/large.py" | tail -1)
exactly 8 "$ran"
# shellcheck disable=SC2016  # for the shell that knows the server's socket
ran=$(with_server -- bash -c 'KAURI_URI=mongodb://${KAURI_SOCKET//\//%2F}/ exec "$@"' - \
  "$python" "$here/pymongo/large.py" | tail -1)
exactly 8 "$ran"
