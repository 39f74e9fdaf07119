#!/usr/bin/env bash
# The smoke suite of the Rust driver.
source "$(dirname "$0")/lib.sh"
out=$(CARGO_TARGET_DIR=$installed/rust with_server -- cargo test --quiet --locked \
  --manifest-path "$here/rust/Cargo.toml" --test smoke 2>&1) || die "$out"
result=$(grep '^test result:' <<<"$out")
[[ $result == *" 0 failed; 0 ignored;"* ]] || die "$out"
exactly 22 "$(awk '{ print $4 }' <<<"$result")"
