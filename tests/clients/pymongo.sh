#!/usr/bin/env bash
# The smoke suite of the Python driver.
source "$(dirname "$0")/lib.sh"
ran=$(with_server -- "$python" "$here/pymongo/smoke.py" | tail -1)
exactly 57 "$ran"
