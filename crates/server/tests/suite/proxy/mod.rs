//! `kauri proxy` between drivers and a server.

mod ends;
mod messages;
mod sessions;
mod stand;
