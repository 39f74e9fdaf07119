//! A proxy before servers that do what a test tells them.

mod drivers;
mod servers;
mod stand;
