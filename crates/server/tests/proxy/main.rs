//! `kauri proxy` between drivers and a server.

mod ends;
mod messages;
#[path = "../rig/process.rs"]
mod process;
mod sessions;
mod stand;
