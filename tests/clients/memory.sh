#!/usr/bin/env bash
# A server with a mapped log, on ordinary memory in place of persistent memory, and the release of freed memory.
source "$(dirname "$0")/lib.sh"
export PYTHONPATH=$here:$here/kill9
exactly 18 "$("$python" "$here/memory/run.py" | tail -1)"
