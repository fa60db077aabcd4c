//! The binary as its users see it, and the rules of the house.

mod array;
mod array_away;
mod array_cut;
mod array_devices;
mod array_refusals;
mod array_trouble;
mod bad_input;
mod crash;
mod dedup_scan;
mod disk;
mod gone;
mod help;
mod house;
mod in_use;
mod json_docs;
mod kv;
mod kv_log;
mod kv_words;
mod nbd;
mod real;
mod replay;
mod rot;
mod ses;
mod support;
mod tools;
