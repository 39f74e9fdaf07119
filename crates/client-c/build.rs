//! Gives the shared library its name: programs that were linked with it ask for this one, so the number
//! goes up when their calls would no longer fit.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libkauri.so.0");
}
