//! Compiles the shim against the installed wiredtiger.h, so that the layout of its structures is the
//! C compiler's business, and links the library. Without the feature there is nothing to build.

fn main() {
    println!("cargo::rerun-if-changed=src/shim.c");
    #[cfg(feature = "wiredtiger")]
    {
        cc::Build::new().file("src/shim.c").warnings(true).compile("kauri_wt_shim");
        println!("cargo::rustc-link-lib=dylib=wiredtiger");
    }
}
