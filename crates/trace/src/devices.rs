//! Adapters that decide where requests fall: selection of a device, devices side by side, shifted alignment.
//!
//! Merging the addresses of different devices would invent overwrites that never happened, so an engine with one device
//! accepts a multi-device trace only through [`select`].

use crate::reason;
use crate::request::{ByteLen, ByteOffset, DeviceId, Request, RequestKind};
use crate::source::{RequestSource, RowCounts};
use crate::summary::Summary;
use std::collections::BTreeMap;
use vellum_base::{Error, Result};

/// Alignment of devices that are laid out side by side.
const DEVICE_ALIGN: u64 = 1 << 20;

/// How to treat the devices of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Select {
    /// Use only requests for this device.
    Only(DeviceId),
    /// Give every device its place in one address space.
    SideBySide(Layout),
    /// Expect a single device: a second one is an error that lists the choices.
    Single,
}

/// Start of each device when all are side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    starts: BTreeMap<DeviceId, u64>,
    end: u64,
}

impl Layout {
    /// Lays out the devices of a trace one after the other, each as large as the trace needs it, aligned to 1 MiB.
    pub fn pack(summary: &Summary) -> Result<Layout> {
        let mut layout = Layout::default();
        for (device, extent) in &summary.devices {
            layout.starts.insert(*device, layout.end);
            layout.end = layout
                .end
                .checked_add(extent.end.0)
                .and_then(|end| end.checked_next_multiple_of(DEVICE_ALIGN))
                .ok_or_else(|| Error::invalid("the devices of this trace do not fit side by side"))?;
        }
        Ok(layout)
    }

    /// Total size of all devices.
    pub const fn size(&self) -> ByteLen {
        ByteLen(self.end)
    }

    fn place(&self, device: DeviceId, offset: ByteOffset) -> Result<ByteOffset> {
        let unknown = || Error::invalid(format!("{device} is not in the layout: was the trace summarised?"));
        let start = self.starts.get(&device).ok_or_else(unknown)?;
        let place = start.checked_add(offset.0);
        place.map(ByteOffset).ok_or_else(|| Error::invalid(format!("{device} runs past the layout")))
    }
}

/// Applies `select`; all resulting requests are for device 0.
pub fn select<S: RequestSource>(source: S, select: Select) -> Selected<S> {
    Selected { source, select, seen: None, failed: false }
}

/// See [`select`].
pub struct Selected<S> {
    source: S,
    select: Select,
    seen: Option<DeviceId>,
    failed: bool,
}

impl<S: RequestSource> Selected<S> {
    fn settle(&mut self, mut request: Request) -> Result<Option<Request>> {
        // A flush has no position; it applies to every device.
        if request.kind != RequestKind::Flush {
            match &self.select {
                Select::Only(device) if request.device != *device => return Ok(None),
                Select::Only(_) => {}
                Select::SideBySide(layout) => {
                    request.offset = layout.place(request.device, request.offset)?
                }
                Select::Single => {
                    let first = *self.seen.get_or_insert(request.device);
                    if first != request.device {
                        return Err(Error::invalid(format!(
                            "the trace has more than one device ({first}, {}): select one, or lay them side by side",
                            request.device
                        ))
                        .because(reason::SEVERAL_DEVICES));
                    }
                }
            }
        }
        request.device = DeviceId(0);
        Ok(Some(request))
    }
}

impl<S: RequestSource> Iterator for Selected<S> {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Result<Request>> {
        while !self.failed {
            let settled = self.source.next()?.and_then(|request| self.settle(request));
            self.failed = settled.is_err();
            if let Some(item) = settled.transpose() {
                return Some(item);
            }
        }
        None
    }
}

impl<S: RequestSource> RequestSource for Selected<S> {
    fn rows(&self) -> RowCounts {
        self.source.rows()
    }
}

/// Moves every request down by `shift`, for traces of a partition that does not start at a multiple of the sector size
/// (CloudPhysics: 63 × 512 bytes). Requests below the shift move to 0.
pub fn shift_down<S: RequestSource>(source: S, shift: ByteLen) -> impl RequestSource {
    Shifted { source, shift }
}

struct Shifted<S> {
    source: S,
    shift: ByteLen,
}

impl<S: RequestSource> Iterator for Shifted<S> {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Result<Request>> {
        let mut item = self.source.next()?;
        if let Ok(request) = &mut item {
            request.offset = ByteOffset(request.offset.0.saturating_sub(self.shift.0));
        }
        Some(item)
    }
}

impl<S: RequestSource> RequestSource for Shifted<S> {
    fn rows(&self) -> RowCounts {
        self.source.rows()
    }
    fn device_bytes(&self) -> Option<ByteLen> {
        self.source.device_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::from_iter;
    use vellum_base::Nanos;

    fn two_devices() -> Vec<Request> {
        let on = |device, offset| Request {
            device: DeviceId(device),
            ..Request::new(Nanos::ZERO, RequestKind::Write, ByteOffset(offset), ByteLen(4096))
        };
        vec![on(3, 0), on(9, 4096), Request::flush(Nanos::ZERO), on(3, 1 << 20)]
    }

    fn offsets(choice: Select) -> Result<Vec<u64>> {
        select(from_iter(two_devices().into_iter()), choice)
            .filter(|r| r.as_ref().is_ok_and(|r| r.kind != RequestKind::Flush) || r.is_err())
            .map(|r| r.map(|r| r.offset.0))
            .collect()
    }

    #[test]
    fn multi_device_traces_do_not_pool_addresses() {
        let summary = Summary::of(from_iter(two_devices().into_iter())).unwrap();
        let layout = Layout::pack(&summary).unwrap();
        assert_eq!(layout.size(), ByteLen(3 << 20));
        assert_eq!(offsets(Select::SideBySide(layout)).unwrap(), [0, (2 << 20) + 4096, 1 << 20]);
        assert_eq!(offsets(Select::Only(DeviceId(9))).unwrap(), [4096]);
        let error = offsets(Select::Single).unwrap_err();
        assert!(error.to_string().contains("side by side"), "{error}");
        assert!(offsets(Select::SideBySide(Layout::default())).is_err());
    }

    #[test]
    fn shifting_aligns_a_partition_that_starts_at_sector_63() {
        let one = Request::new(Nanos::ZERO, RequestKind::Read, ByteOffset(63 * 512), ByteLen(4096));
        let shifted: Vec<_> = shift_down(from_iter([one].into_iter()), ByteLen(63 * 512)).collect();
        assert!(shifted[0].as_ref().unwrap().is_aligned());
    }
}
