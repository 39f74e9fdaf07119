#!/usr/bin/env bash
# A server whose log is mapped, with ordinary memory standing in for persistent memory; and that freed memory is
# given back.
source "$(dirname "$0")/lib.sh"
export PYTHONPATH=$here:$here/kill9
exactly 18 "$("$python" "$here/memory/run.py" | tail -1)"
