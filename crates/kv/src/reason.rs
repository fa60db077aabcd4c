//! The reasons of errors that callers of this crate tell apart ([`vellum_base::Reason`]).

use vellum_base::Reason;

/// The file CURRENT is missing, though there are tables or logs. Put it back, or repair the store.
pub const CURRENT_MISSING: Reason = Reason::new("kv.current-missing");
/// The directory holds a store of another program. Choose another directory.
pub const FOREIGN_STORE: Reason = Reason::new("kv.foreign-store");
/// There is a store in the directory already. Open that, or choose another directory.
pub const STORE_EXISTS: Reason = Reason::new("kv.store-exists");
/// No store is on the flash. Format it first, if it is the right one.
pub const NO_STORE_ON_FLASH: Reason = Reason::new("kv.no-store-on-flash");

/// What is on a device would be destroyed. Look at what it is; if it may be lost, format with force.
pub const DEVICE_NOT_BLANK: Reason = Reason::new("kv.device-not-blank");
/// The tables of a directory are on another device, or were to be. Name that, or format with force.
pub const DEVICE_OTHER: Reason = Reason::new("kv.device-other");
/// A directory does not say on which device its tables are, though it needs to. Name the device
/// ([`ZoneMedia::restore`](crate::ZoneMedia::restore)).
pub const DEVICE_UNKNOWN: Reason = Reason::new("kv.device-unknown");
/// A directory is a copy, and the tables on the device belong to the original. Use that, or copy the device, too
/// ([`ZoneMedia::move_to`](crate::ZoneMedia::move_to)).
pub const DIRECTORY_COPIED: Reason = Reason::new("kv.directory-copied");
/// A device has too few zones, or too small ones. Cut it into others, or take a larger one.
pub const ZONES_UNFIT: Reason = Reason::new("kv.zones-unfit");

/// A log is damaged, and records follow that were not synced. Open the store without
/// [`Options::strict_log`](crate::Options::strict_log), which takes it to end there, or repair it.
pub const LOG_DAMAGED: Reason = Reason::new("kv.log-damaged");
/// What an iterator was at could not be read where it is mapped. Seek again: it is read in another way then.
pub const NOT_READ_MAPPED: Reason = Reason::new("kv.not-read-mapped");
/// A key that is ingested does not follow the one before it. Sort the keys, or write them.
pub const KEYS_OUT_OF_ORDER: Reason = Reason::new("kv.keys-out-of-order");
/// A value is longer than the store takes. Make room if the error is one of [`vellum_base::Kind::NoSpace`].
pub const VALUE_TOO_LONG: Reason = Reason::new("kv.value-too-long");
/// Nothing can be in two tables at once on this medium, in such units. Use [`Reuse::Auto`](crate::Reuse::Auto).
pub const SHARES_NOTHING: Reason = Reason::new("kv.shares-nothing");
