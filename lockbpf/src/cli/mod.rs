//! (being written)

pub mod doctor;
