//! Compiles the shim against the installed wiredtiger.h, so that the C compiler determines the layout of its
//! structures, and links the library. Without the feature it builds nothing.

fn main() {
    println!("cargo::rerun-if-changed=src/shim.c");
    #[cfg(feature = "wiredtiger")]
    {
        cc::Build::new().file("src/shim.c").warnings(true).compile("kauri_wt_shim");
        println!("cargo::rustc-link-lib=dylib=wiredtiger");
    }
}
