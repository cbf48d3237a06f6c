//! What works without JavaScript.
