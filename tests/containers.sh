#!/usr/bin/env bash
# The images of containers/: what is in them, built and run by podman, and by the steps of Apptainer's definition.
source "$(dirname "$0")/clients/lib.sh"
out=$("$python" "$root/tests/containers/run.py" "$root/containers" "$target/release/libkauri.so") || die "$out"
sed '$d' <<<"$out"
exactly 5 "$(tail -1 <<<"$out")"
