//! Order in time. A section is delivered when it ends but began earlier: [`Sorter`] takes events apart into steps and puts
//! the steps in order.
#![forbid(unsafe_code)]

mod explode;
mod sorter;
#[cfg(test)]
mod tests;
mod ties;
mod watermark;

pub use sorter::{CAPACITY, Ready, Sorter};
pub use watermark::Watermark;
