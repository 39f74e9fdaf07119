#!/usr/bin/env bash
# scripts/guard finds a planted slowdown of find (tests/guard/slowdown.patch: a twentieth of a request's time), by its
# counts and by its times. It finds no difference between a server and itself. Takes about ten minutes on an otherwise
# idle machine; `make test` runs only the parts that measure no times.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
guard=$(realpath -m "${CARGO_TARGET_DIR:-target}")/guard
mkdir -p "$guard"
git worktree prune
[ -e "$guard/tree/.git" ] || git worktree add --force --detach "$guard/tree" HEAD
# Both servers come from one work tree: cargo looks at the times of its files.
build() { # NAME
  (cd "$guard/tree" && CARGO_TARGET_DIR=$guard/build cargo build --release --locked -p kauri-server)
  cp "$guard/build/release/kauri" "$guard/kauri-$1"
}
head=$(git rev-parse HEAD)
git -C "$guard/tree" checkout --quiet --force --detach "$head"
build whole
git -C "$guard/tree" apply "$root/tests/guard/slowdown.patch"
build planted
git -C "$guard/tree" checkout --quiet --force --detach "$head"
expect() { # STATUS BEFORE AFTER WORDS…
  local status=0 out wanted=$1 before=$2 after=$3
  shift 3
  out=$(scripts/guard --before "$guard/kauri-$before" --after "$guard/kauri-$after") || status=$?
  echo "$out"
  for words in "$@"; do
    [ "$status" = "$wanted" ] && grep -q "$words" <<<"$out" || {
      echo "guard: status $status, expected $wanted and '$words'" >&2
      exit 1
    }
  done
}
expect 0 whole whole '^nothing has become worse'
expect 1 whole planted '^worse: find: .* more instructions' '^worse: \(find\|A\): .*, twice beyond noise'
echo "guard: the planted slowdown was found"
