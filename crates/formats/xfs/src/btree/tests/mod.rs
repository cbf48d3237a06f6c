//! Trees compared with a model: after each run of random changes the records equal the model's, and the structure
//! passes a checker's rules.

mod damage;
mod harness;
mod kernel;
mod model;
mod reverse_map;
mod structure;
