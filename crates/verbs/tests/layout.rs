//! The table that checks the declarations (`src/sys/ffi/layout.rs`) equals the C compiler's layout of
//! libibverbs' headers. The test needs these headers and a C compiler.

use std::fmt::Write;
use std::process::Command;

#[test]
fn the_table_matches_the_headers() {
    let table: Vec<&str> =
        include_str!("layout.txt").lines().filter(|line| !line.starts_with('#')).collect();
    let mut source = String::from(
        "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
    );
    for line in &table {
        let words: Vec<&str> = line.split(' ').collect();
        let (structure, field) = (words[0], words[1]);
        let place = match field {
            "sizeof" => format!("sizeof(struct {structure})"),
            field => format!("offsetof(struct {structure}, {field})"),
        };
        writeln!(source, "printf(\"{structure} {field} %zu\\n\", {place});").unwrap();
    }
    source.push_str("return 0; }\n");

    let directory = std::env::temp_dir().join(format!("kauri-verbs-layout-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (c, program) = (directory.join("layout.c"), directory.join("layout"));
    std::fs::write(&c, source).unwrap();
    let compiled = Command::new("cc").arg("-o").arg(&program).arg(&c).status().unwrap();
    assert!(compiled.success(), "libibverbs-dev is needed: scripts/bootstrap test installs it");
    let output = Command::new(&program).output().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.lines().collect::<Vec<_>>(), table);
}
