//! Crashes of followers.
