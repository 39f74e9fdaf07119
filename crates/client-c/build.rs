//! Sets the name of the shared library. Programs that were linked with it load this name, so the number grows with
//! incompatible changes.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libkauri.so.0");
}
