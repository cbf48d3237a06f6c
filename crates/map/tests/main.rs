//! Contract of this crate, compared with the images' own records and with the tools of the formats.

extern crate diskwright_map as map;
#[macro_use]
extern crate oracle;

mod common;
mod damage;
mod drawing;
mod golden;
mod places;
mod tools;
