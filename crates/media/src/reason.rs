//! The reasons of errors that callers of this crate tell apart ([`vellum_base::Reason`]).

use vellum_base::Reason;

/// Somebody else has the device or file open, or it is mounted. End that, or take another.
pub const DEVICE_IN_USE: Reason = Reason::new("media.device-in-use");
/// Neither header of a flash image is whole. Write those of an image that was created alike over them.
pub const IMAGE_HEADERS: Reason = Reason::new("media.image-headers");
/// A device cannot be cut into zones of the size that was asked for. Ask for another.
pub const ZONES_UNFIT: Reason = Reason::new("media.zones-unfit");
