//! Blocks in memory, against a plain model.
