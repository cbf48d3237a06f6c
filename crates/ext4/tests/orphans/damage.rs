//! Orphans that cannot be: named, and nothing written.
