//! Kauri's own clients before a replica set: they follow the primary.

mod follower;
mod proxy;
mod stand;
