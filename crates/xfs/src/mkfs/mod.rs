//! Making file systems.
