//! Areas, and the framing of their records (docs/formats/kv-log.md).

/// Bytes of the head of a record.
pub(crate) const FRAME_HEAD_BYTES: usize = 16;
/// Bytes of the record that an area begins with, and of a mark.
pub(crate) const AREA_HEAD_BYTES: usize = FRAME_HEAD_BYTES + 28;
pub(crate) const MARK_BYTES: usize = FRAME_HEAD_BYTES + 8;
/// Most bytes of a record's payload.
pub(crate) const PAYLOAD_BYTES_MAX: usize = (1 << 30) - 1;
/// Format versions of areas: in the first, records do not identify their store; in the second they do.
pub(super) const VERSIONS: [u32; 2] = [1, 2];

/// What an area holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AreaKind {
    /// A write-ahead log: batches that may not be in tables yet.
    Log,
    /// A manifest: edits that say which tables make up the store.
    Manifest,
}

/// An append-only log or manifest, by number. Numbers are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Area {
    /// What it holds.
    pub kind: AreaKind,
    /// Its number.
    pub number: u64,
}

impl Area {
    /// Log `number`.
    pub fn log(number: u64) -> Area {
        Area { kind: AreaKind::Log, number }
    }
    /// Manifest `number`.
    pub fn manifest(number: u64) -> Area {
        Area { kind: AreaKind::Manifest, number }
    }

    /// Tag that is mixed into checksums of records: of a store's records, or without one for heads and for all records
    /// of version 1.
    pub(super) fn tag(self, store: Option<u64>) -> u32 {
        let kind = match self.kind {
            AreaKind::Log => b"VKLG",
            AreaKind::Manifest => b"VKMF",
        };
        let store = store.map(u64::to_le_bytes);
        let store = store.as_ref().map_or(&[][..], |store| store);
        vellum_codes::crc32c(&[kind, &self.number.to_le_bytes()[..], store].concat())
    }
}

impl std::fmt::Display for Area {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            AreaKind::Log => write!(f, "log {}", self.number),
            AreaKind::Manifest => write!(f, "manifest {}", self.number),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordKind {
    Data = 0,
    Mark = 1,
    Head = 2,
}

/// The previous area of the same kind, as recorded in the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Previous {
    pub number: u64,
    pub length: u64,
}

/// Makes the records of one area.
#[derive(Clone, Copy)]
pub(crate) struct Framer {
    area: Area,
    store: Option<u64>,
    tag: u32,
}

impl Framer {
    /// For an area of the store with this number.
    pub(crate) fn new(area: Area, store: u64) -> Framer {
        Framer { area, store: Some(store), tag: area.tag(Some(store)) }
    }
    /// For an area of version 1, which has no store number.
    #[cfg(test)]
    pub(super) fn of_version_1(area: Area) -> Framer {
        Framer { area, store: None, tag: area.tag(None) }
    }

    /// Appends the record that an area begins with.
    pub(crate) fn head(self, out: &mut Vec<u8>, seq: u64, previous: Previous) {
        let of_heads = Framer { tag: self.area.tag(None), ..self };
        of_heads.frame(out, RecordKind::Head, seq, |out| {
            out.extend_from_slice(&VERSIONS[self.store.is_some() as usize].to_le_bytes());
            out.extend_from_slice(&previous.number.to_le_bytes());
            out.extend_from_slice(&previous.length.to_le_bytes());
            out.extend(self.store.into_iter().flat_map(u64::to_le_bytes));
        });
    }
    /// Appends a mark, which says that everything below `safe` is durable.
    pub(crate) fn mark(self, out: &mut Vec<u8>, seq: u64, safe: u64) {
        self.frame(out, RecordKind::Mark, seq, |out| out.extend_from_slice(&safe.to_le_bytes()));
    }
    /// Appends a record with `payload`.
    pub(crate) fn data(self, out: &mut Vec<u8>, seq: u64, payload: &[u8]) {
        assert!(payload.len() <= PAYLOAD_BYTES_MAX);
        self.frame(out, RecordKind::Data, seq, |out| out.extend_from_slice(payload));
    }

    fn frame(self, out: &mut Vec<u8>, kind: RecordKind, seq: u64, payload: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&seq.to_le_bytes());
        payload(out);
        let length = (out.len() - start - FRAME_HEAD_BYTES) as u32 | (kind as u32) << 30;
        out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
        let crc = vellum_codes::crc32c(&out[start + 4..]) ^ self.tag;
        out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    }
}
