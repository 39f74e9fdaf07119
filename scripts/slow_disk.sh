# Sourced by other scripts: builds the slow disk's library and preloads it into all programs started afterwards.
# DISK_READ_US, DISK_SYNC_US and DISK_MB_S set its speed.
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
KAURI=$(realpath -m "${KAURI:-$target/release/kauri}")
[ -x "$KAURI" ] || {
  echo "no $KAURI: cargo build --release -p kauri-server --features wiredtiger" >&2
  exit 1
}

slow_disk() { # DIRECTORY
  cc -O2 -shared -fPIC -o "$target/slow_disk.so" tests/disk/slow_disk.c -ldl
  FLASH_DIR=$(realpath -m "$1/flash") DISK_DIR=$(realpath -m "$1/disk")
  mkdir -p "$FLASH_DIR" "$DISK_DIR"
  rm -f "$DISK_DIR/fast"
  export SLOW_DISK_DIR=$DISK_DIR SLOW_DISK_UNCACHED_DIR=$FLASH_DIR
  export SLOW_DISK_READ_US=${DISK_READ_US:-2000} SLOW_DISK_SYNC_US=${DISK_SYNC_US:-2000}
  export SLOW_DISK_MB_S=${DISK_MB_S:-120}
  export LD_PRELOAD=$target/slow_disk.so
}
