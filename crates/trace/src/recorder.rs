//! A block device that records the requests it gets.
//!
//! Requests are recorded in the order of their acknowledgement, with their contents, in a vtrace file. The trace never
//! affects the device: its first error stops the recording and is reported by [`Recorder::finish`]. Reads and writes
//! longer than [`REQUEST_BYTES_MAX`] are recorded as several.
//!
//! Of contents a trace stores what an engine needs ([`Content::of_bytes`]) or, on request, all bytes: these are needed
//! to compare versions of a sector.

use crate::content::Content;
use crate::request::{ByteLen, ByteOffset, REQUEST_BYTES_MAX, Request, RequestKind};
use crate::vtrace::{Header, Writer};
use std::io::Write;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Env, Error, Lba, Nanos, Result, SECTOR_BYTES};

/// Records every successful request to `D`.
pub struct Recorder<D, W: Write> {
    device: D,
    env: Arc<dyn Env>,
    content_of: fn(&[u8]) -> Content,
    trace: Mutex<Trace<W>>,
}

enum Trace<W: Write> {
    Open(Box<Writer<W>>),
    Failed(Error),
    Finished,
}

impl<D: BlockDevice, W: Write + Send> Recorder<D, W> {
    /// Records into `out`. The header's device size is set to that of `device`.
    pub fn new(device: D, env: Arc<dyn Env>, out: W, mut header: Header) -> Result<Recorder<D, W>> {
        header.device_bytes = ByteLen(device.info().bytes());
        let trace = Mutex::new(Trace::Open(Box::new(Writer::new(out, &header)?)));
        Ok(Recorder { device, env, content_of: Content::of_bytes, trace })
    }

    /// Makes the trace store the real bytes of everything written from now on.
    #[must_use]
    pub fn with_all_bytes(mut self) -> Recorder<D, W> {
        self.content_of = Content::all_bytes;
        if let Trace::Open(writer) = self.trace.get_mut() {
            writer.hurry();
        }
        self
    }

    /// The device below.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Writes out everything recorded so far, so that the trace is readable up to here if the process is killed.
    pub fn save(&self) {
        let mut trace = self.trace.lock();
        if let Trace::Open(writer) = &mut *trace
            && let Err(error) = writer.save()
        {
            *trace = Trace::Failed(error);
        }
    }

    /// Ends the trace and returns its file, or the error that stopped the recording. Later requests still reach the
    /// device and are not recorded.
    pub fn finish(&self) -> Result<W> {
        match std::mem::replace(&mut *self.trace.lock(), Trace::Finished) {
            Trace::Open(writer) => writer.finish(),
            Trace::Failed(error) => Err(error.context("record the trace")),
            Trace::Finished => Err(Error::invalid("the trace was finished before")),
        }
    }

    /// Appends a request, unless its length is zero.
    fn record(&self, request: &Request) {
        if request.length.0 == 0 && request.kind != RequestKind::Flush {
            return;
        }
        let mut trace = self.trace.lock();
        if let Trace::Open(writer) = &mut *trace
            && let Err(error) = writer.write(request)
        {
            *trace = Trace::Failed(error);
        }
    }

    fn record_write(&self, time: Nanos, lba: Lba, data: &[u8], fua: bool) {
        let mut lba = lba;
        for part in data.chunks(REQUEST_BYTES_MAX.0 as usize) {
            let contents: Vec<_> = part.chunks_exact(SECTOR_BYTES).map(self.content_of).collect();
            let sectors = contents.len() as u64;
            self.record(&Request::write(time, lba, contents, fua));
            lba = lba.offset(sectors);
        }
    }
}

impl<D: BlockDevice, W: Write + Send> BlockDevice for Recorder<D, W> {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        let time = self.env.now();
        self.device.read(lba, buf)?;
        let mut lba = lba;
        for part in buf.chunks(REQUEST_BYTES_MAX.0 as usize) {
            let sectors = (part.len() / SECTOR_BYTES) as u64;
            self.record(&placed(time, RequestKind::Read, lba, sectors));
            lba = lba.offset(sectors);
        }
        Ok(())
    }

    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        let time = self.env.now();
        self.device.write(lba, data, fua)?;
        self.record_write(time, lba, data, fua);
        Ok(())
    }

    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        let time = self.env.now();
        self.device.trim(lba, sectors)?;
        self.record(&placed(time, RequestKind::Trim, lba, sectors));
        Ok(())
    }

    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        let time = self.env.now();
        self.device.write_zeroes(lba, sectors, fua)?;
        self.record(&Request { fua, ..placed(time, RequestKind::WriteZeroes, lba, sectors) });
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let time = self.env.now();
        self.device.flush()?;
        self.record(&Request::flush(time));
        Ok(())
    }

    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.device.allocation(lba, sectors)
    }
}

/// A request for whole sectors, which the device has accepted as within its bounds.
fn placed(time: Nanos, kind: RequestKind, lba: Lba, sectors: u64) -> Request {
    Request::new(time, kind, ByteOffset(lba.0 * SECTOR_BYTES as u64), ByteLen::of_sectors(sectors))
}
