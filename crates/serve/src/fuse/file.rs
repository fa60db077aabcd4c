//! The single file of the mount: answers the kernel's requests from the device.

use crate::bytes::ByteDevice;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::cell::RefCell;
use std::io;
use std::time::{Duration, SystemTime};
use vellum_base::{Allocation, Error, Kind, SECTOR_BYTES};

/// Longest read or write in one request; the kernel's own limit.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
const REQUESTS_IN_FLIGHT_MAX: u16 = 256;
/// The file's attributes never change, so the kernel may cache them.
const ATTRIBUTES_LAST: Duration = Duration::from_secs(24 * 3600);

// Modes of fallocate(2) and lseek(2), and flags of open(2), as Linux numbers them.
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
const O_DSYNC: i32 = 0o10000;

pub(super) struct DiskFile {
    device: ByteDevice,
    read_only: bool,
    mounted: SystemTime,
    owner: (u32, u32),
}

thread_local! {
    // Grows to the longest read once, and is never cleared again.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl DiskFile {
    #[expect(clippy::disallowed_methods, reason = "files have dates")]
    pub(super) fn new(device: ByteDevice, read_only: bool) -> DiskFile {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        DiskFile { device, read_only, mounted: SystemTime::now(), owner }
    }

    fn attributes(&self) -> FileAttr {
        FileAttr {
            ino: INodeNo::ROOT,
            size: self.device.bytes(),
            blocks: self.device.bytes() / 512,
            atime: self.mounted,
            mtime: self.mounted,
            ctime: self.mounted,
            crtime: self.mounted,
            kind: FileType::RegularFile,
            perm: if self.read_only { 0o400 } else { 0o600 },
            nlink: 1,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: SECTOR_BYTES as u32,
            flags: 0,
        }
    }

    /// `length`, truncated at the end of the file.
    fn within(&self, offset: u64, length: u64) -> u64 {
        length.min(self.device.bytes().saturating_sub(offset))
    }

    fn change_range(&self, offset: u64, length: u64, mode: i32) -> Result<(), Errno> {
        if self.read_only {
            return Err(Errno::EROFS);
        }
        let length_here = self.within(offset, length);
        match mode {
            _ if length == 0 => Err(Errno::EINVAL),
            // The kernel trims with this mode, and stops trying where it is refused.
            m if m == PUNCH_HOLE | KEEP_SIZE && !self.device.trims() => Err(Errno::EOPNOTSUPP),
            m if m == PUNCH_HOLE | KEEP_SIZE => self.device.trim(offset, length_here).map_err(|e| errno(&e)),
            m if m & !KEEP_SIZE == ZERO_RANGE => {
                if length_here < length && mode & KEEP_SIZE == 0 {
                    return Err(Errno::EFBIG); // a disk does not grow
                }
                self.device.write_zeroes(offset, length_here, false).map_err(|e| errno(&e))
            }
            // All space is allocated already.
            m if m & !KEEP_SIZE == 0 && length_here == length => Ok(()),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// The first byte from `offset` on that is data, or, without `data`, in a hole. The end of the file counts as a
    /// hole.
    fn seek(&self, offset: u64, data: bool) -> Result<u64, Errno> {
        let end = self.device.bytes();
        let mut at = offset;
        while at < end {
            let (kind, alike) = self.device.allocation(at, end - at).map_err(|e| errno(&e))?;
            if (kind == Allocation::Data) == data {
                return Ok(at);
            }
            at += alike;
        }
        if data || offset >= end { Err(Errno::ENXIO) } else { Ok(end) }
    }
}

impl Filesystem for DiskFile {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let refused = |what: &str| io::Error::other(format!("the kernel's FUSE is too old: {what}"));
        config.set_max_write(REQUEST_BYTES_MAX).map_err(|_| refused("requests of 1 MiB"))?;
        config.set_max_background(REQUESTS_IN_FLIGHT_MAX).map_err(|_| refused("requests in flight"))?;
        // Without it there is only one direct request at a time.
        config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).map_err(|_| refused("asynchronous direct I/O"))
    }

    fn destroy(&mut self) {
        if !self.read_only {
            // Those who needed durability have called fsync, and got its error.
            let _ = self.device.flush();
        }
    }

    fn getattr(&self, _req: &Request, _ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&ATTRIBUTES_LAST, &self.attributes());
    }

    fn setattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // Setting dates is ignored; size, mode and owner cannot change.
        if size.is_some_and(|s| s != self.device.bytes()) || mode.or(uid).or(gid).is_some() {
            return reply.error(Errno::EPERM);
        }
        reply.attr(&ATTRIBUTES_LAST, &self.attributes());
    }

    fn open(&self, _req: &Request, _ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.read_only && flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let how = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), how);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let length = self.within(offset, u64::from(size)) as usize;
        if length == 0 {
            return reply.data(&[]);
        }
        READ_BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < length {
                buffer.resize(length, 0);
            }
            match self.device.read(offset, &mut buffer[..length]) {
                Ok(()) => reply.data(&buffer[..length]),
                Err(e) => reply.error(errno(&e)),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let length = self.within(offset, data.len() as u64) as usize;
        if self.read_only {
            return reply.error(Errno::EROFS);
        }
        if length == 0 && !data.is_empty() {
            return reply.error(Errno::ENOSPC); // as a block device says beyond its end
        }
        match self.device.write(offset, &data[..length], flags.0 & O_DSYNC != 0) {
            Ok(()) => reply.written(length as u32),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok(); // close(2) promises no durability, and nothing is held back that could fail
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        match if self.read_only { Ok(()) } else { self.device.flush() } {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(errno(&e)),
        }
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        match self.change_range(offset, length, mode) {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let found = match (whence, u64::try_from(offset)) {
            (SEEK_DATA | SEEK_HOLE, Ok(offset)) => self.seek(offset, whence == SEEK_DATA),
            _ => Err(Errno::EINVAL),
        };
        match found {
            Ok(at) => reply.offset(at as i64),
            Err(e) => reply.error(e),
        }
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let sectors = self.device.bytes() / SECTOR_BYTES as u64;
        reply.statfs(sectors, 0, 0, 1, 0, SECTOR_BYTES as u32, 255, SECTOR_BYTES as u32);
    }
}

fn errno(error: &Error) -> Errno {
    match error.kind() {
        Kind::Invalid => Errno::EINVAL,
        Kind::NoSpace => Errno::ENOSPC,
        Kind::Unsupported => Errno::EOPNOTSUPP,
        Kind::Poisoned => Errno::EROFS,
        _ => Errno::EIO,
    }
}
