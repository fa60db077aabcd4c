//! The reasons of errors that callers of this crate tell apart ([`crate::base::Reason`]). Those of errors that it does
//! not raise itself are in the crates below: [`crate::kv::reason`], [`crate::media::reason`] and so on.

use vellum_base::Reason;

/// A disk's dedup mode can corrupt data. Take another, or accept that
/// ([`OpenMode::accept_corruption`](crate::OpenMode::accept_corruption)).
pub const CAN_CORRUPT: Reason = Reason::new("vellum.can-corrupt");
/// A share that tunes deduplication is not more than 0 and at most 1. Give another, or none.
pub const SHARE_OUT_OF_RANGE: Reason = Reason::new("vellum.share-out-of-range");
/// Deduplication was tuned on a disk whose mode has nothing to tune. Leave that out, or make another disk.
pub const TUNES_NOTHING: Reason = Reason::new("vellum.tunes-nothing");
/// The scrambler that the host was given is not that of the disk. Learn that, or leave it to the device.
pub const HOST_SCRAMBLER: Reason = Reason::new("vellum.host-scrambler");
/// Journals were named that overlap, are not on the disk, or are of no use to it. Name others, or none.
pub const NAMED_JOURNALS: Reason = Reason::new("vellum.named-journals");

/// A key-value store was asked for as one of the other engine. Ask for none, or copy it to a new one.
pub const OTHER_ENGINE: Reason = Reason::new("vellum.other-engine");
/// A log store was to compress. Ask for none.
pub const COMPRESSES_NOTHING: Reason = Reason::new("vellum.compresses-nothing");
/// A log store was to take the contents of several keyspaces. Take an ordered one, or copy one keyspace.
pub const NO_KEYSPACES: Reason = Reason::new("vellum.no-keyspaces");
/// A flash image has no key-value store on it, but perhaps a disk. Name another.
pub const NO_STORE_ON_IMAGE: Reason = Reason::new("vellum.no-store-on-image");
/// Making a key-value store was cut short. Make it again.
pub const STORE_UNFINISHED: Reason = Reason::new("vellum.store-unfinished");
/// A new key-value store was to be where something else is. Choose another place.
pub const PLACE_TAKEN: Reason = Reason::new("vellum.place-taken");
