//! `kauri proxy` between drivers and a server.

mod ends;
mod memory;
mod messages;
mod sessions;
mod stand;
