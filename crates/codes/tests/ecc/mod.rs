//! The error-correcting code against its definition, written down as slowly as it can be.

mod correct;
mod distance;
mod encode;
mod fold;
mod oracle;
mod tables;
