//! What this crate promises, compared with what images say of themselves, and with what the tools of the formats say.

extern crate diskwright_map as map;
#[macro_use]
extern crate oracle;

mod common;
mod damage;
mod drawing;
mod golden;
mod places;
mod tools;
