#!/usr/bin/env bash
# The smoke suite of the Rust driver, and its bulk writes over several collections.
source "$(dirname "$0")/lib.sh"
out=$(CARGO_TARGET_DIR=$installed/rust with_server -- cargo test --quiet --locked \
  --manifest-path "$here/rust/Cargo.toml" --test smoke --test bulk 2>&1) || die "$out"
results=$(grep '^test result:' <<<"$out")
[ "$(grep -c ' 0 failed; 0 ignored;' <<<"$results")" = 2 ] || die "$out"
exactly 32 "$(awk '{ passed += $4 } END { print passed }' <<<"$results")"
