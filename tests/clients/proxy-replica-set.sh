#!/usr/bin/env bash
# Reads through `kauri proxy` before a replica set, by the read preferences of the proxy and of the driver.
source "$(dirname "$0")/lib.sh"
ran=$(with_set -- "$python" "$here/pymongo/proxy_reads.py" | tail -1)
exactly 15 "$ran"
