#![allow(dead_code)]
#[path = "suite/common.rs"]
mod common;
#[path = "suite/crash.rs"]
mod crash;
#[path = "suite/crash_sites.rs"]
mod crash_sites;
#[path = "suite/crash_target.rs"]
mod crash_target;
#[path = "suite/marks.rs"]
mod marks;
