#!/usr/bin/env bash
# Expensive requests from some clients cost the others little, and a server in a control group of 1 GB outlives them.
# HOSTILE_SECONDS: how long each load lasts (10; ten minutes is 600).
source "$(dirname "$0")/lib.sh"
export PYTHONPATH=$here
"$python" "$here/hostile/run.py"
