//! What a trace says was written, by sector: the source of deltas of real contents.
//!
//! 1. Equal contents are one version, whichever sector they were written to.
//! 2. All versions are in memory, each once and without its zero lines: as many as the trace has distinct contents.

use serde::Serialize;
use vellum_base::hash::FixedMap;
use vellum_trace::{Content, Request, RequestKind};

/// A distinct content of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(u32);

impl Version {
    /// Zeros, as after a trim.
    pub const ZERO: Version = Version(0);
    /// Unknown: what a sector held before the trace wrote to it, and what a trace does not say.
    pub const UNKNOWN: Version = Version(u32::MAX);
}

/// Number of written sectors, by what their trace says of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The bytes are known, or are all zeros.
    pub real: u64,
    /// It is known which of them are equal, but not the bytes.
    pub fingerprints: u64,
    /// Nothing is known.
    pub unknown: u64,
}

impl Kept {
    /// True if something is known of at least one sector.
    pub fn says_something(self) -> bool {
        self.real + self.fingerprints > 0
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Written {
    /// By version.
    contents: Vec<Content>,
    /// Versions of all written sectors, in the order of the requests.
    sectors: Vec<Version>,
    /// Index of each request's first sector.
    starts: Vec<usize>,
    kept: Kept,
}

impl Written {
    /// How many sectors have which kind of content.
    pub fn kept(&self) -> Kept {
        self.kept
    }

    /// What a request wrote to its n-th sector.
    pub(super) fn version(&self, request: usize, nth: usize) -> Version {
        self.sectors[self.starts[request] + nth]
    }

    /// Content of a version; None if unknown.
    pub(super) fn content(&self, version: Version) -> Option<&Content> {
        self.contents.get(version.0 as usize)
    }
}

/// Builds [`Written`], request by request.
pub(super) struct Gather {
    written: Written,
    known: FixedMap<Content, Version>,
}

impl Gather {
    pub fn new() -> Gather {
        let written = Written {
            contents: vec![Content::Zero],
            sectors: Vec::new(),
            starts: Vec::new(),
            kept: Kept::default(),
        };
        Gather { written, known: FixedMap::from_iter([(Content::Zero, Version::ZERO)]) }
    }

    /// Adds the next request.
    pub fn add(&mut self, request: &Request) {
        self.written.starts.push(self.written.sectors.len());
        if request.kind != RequestKind::Write {
            return;
        }
        let (_, sectors) = request.sectors();
        if request.contents.len() as u64 == sectors {
            request.contents.iter().for_each(|content| self.add_sector(content));
        } else {
            self.written.kept.unknown += sectors;
            self.written.sectors.extend((0..sectors).map(|_| Version::UNKNOWN));
        }
    }

    fn add_sector(&mut self, content: &Content) {
        let kept = &mut self.written.kept;
        match content {
            Content::Zero | Content::Verbatim(_) => kept.real += 1,
            Content::Pattern(_) => kept.fingerprints += 1,
        }
        let contents = &mut self.written.contents;
        let next = || {
            contents.push(content.clone());
            Version((contents.len() - 1) as u32)
        };
        let version = match self.known.get(content) {
            Some(version) => *version,
            None => *self.known.entry(content.clone()).or_insert_with(next),
        };
        self.written.sectors.push(version);
    }

    pub fn done(self) -> Written {
        self.written
    }
}
