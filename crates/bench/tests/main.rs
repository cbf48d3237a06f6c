//! Tests of what is run from outside.

mod page;
