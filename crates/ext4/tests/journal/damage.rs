//! Journals that are damaged: the error says what and where, and nothing was written.
