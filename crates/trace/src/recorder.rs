//! A block device that writes down what is asked of it.
//!
//! Requests are recorded in the order in which the device has acknowledged them, with their contents, into a
//! vtrace file. The trace never gets in the way of the device: its first error stops the recording and is
//! reported by [`Recorder::finish`]. Reads and writes longer than [`REQUEST_BYTES_MAX`] are recorded as several.
//!
//! Of contents a trace keeps what an engine needs ([`Content::of_bytes`]), or, where it is told to, all bytes: for who
//! wants to know what two versions of a sector differ by.

use crate::content::Content;
use crate::request::{ByteLen, ByteOffset, REQUEST_BYTES_MAX, Request, RequestKind};
use crate::vtrace::{Header, Writer};
use std::io::Write;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Env, Error, Lba, Nanos, Result, SECTOR_BYTES};

/// Records every request of `D` that succeeds.
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

    /// From now on the trace has the real bytes of all that is written.
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

    /// Writes out what was recorded so far, so that a process that is killed leaves a trace up to here.
    pub fn save(&self) {
        let mut trace = self.trace.lock();
        if let Trace::Open(writer) = &mut *trace
            && let Err(error) = writer.save()
        {
            *trace = Trace::Failed(error);
        }
    }

    /// Ends the trace and gives its file back, or the error that stopped the recording. Whatever is asked
    /// later still reaches the device and is not recorded.
    pub fn finish(&self) -> Result<W> {
        match std::mem::replace(&mut *self.trace.lock(), Trace::Finished) {
            Trace::Open(writer) => writer.finish(),
            Trace::Failed(error) => Err(error.context("record the trace")),
            Trace::Finished => Err(Error::invalid("the trace was finished before")),
        }
    }

    /// Appends one request, unless it asks for nothing.
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

/// A request for whole sectors that the device has found to lie within it.
fn placed(time: Nanos, kind: RequestKind, lba: Lba, sectors: u64) -> Request {
    Request::new(time, kind, ByteOffset(lba.0 * SECTOR_BYTES as u64), ByteLen::of_sectors(sectors))
}
