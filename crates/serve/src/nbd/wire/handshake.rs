//! The first phase: greeting, options, and the server's answers to them.

use super::{BadMagic, Cursor};

/// `NBDMAGIC`.
pub const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`, before each option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Before each answer to an option.
pub const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Bytes of the server's greeting.
pub const GREETING_BYTES: usize = 18;
/// Bytes of an option's header.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Longest string the protocol allows.
pub const STRING_BYTES_MAX: usize = 4096;
/// Most queries accepted in a meta-context option.
pub const QUERIES_MAX: u32 = 256;

/// Handshake flag of both sides: options after an unknown one still work.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1;
/// Handshake flag of both sides: no 124 zeros after the answer to `EXPORT_NAME`.
pub const FLAG_NO_ZEROES: u16 = 2;

/// The only meta context served.
pub const BASE_ALLOCATION: &str = "base:allocation";

/// The header of an option: its code, and how much data follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// Which option.
    pub code: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

/// An option sent by a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientOption {
    /// Begin transmission with this export; there is no error answer.
    ExportName(String),
    /// End the session.
    Abort,
    /// List the exports.
    List,
    /// Begin encryption.
    StartTls,
    /// Describe an export, and begin transmission with it if `go`.
    Info {
        /// The export; empty for the default one.
        name: String,
        /// The `INFO_*` blocks that the client would like.
        wanted: Vec<u16>,
        /// True for `GO`: begin.
        go: bool,
    },
    /// Use structured replies.
    StructuredReply,
    /// List meta contexts, or (`set`) select them.
    MetaContext {
        /// The export; empty for the default one.
        name: String,
        /// Contexts or name spaces.
        queries: Vec<String>,
        /// True for `SET_META_CONTEXT`.
        set: bool,
    },
    /// An option this server does not know.
    Unknown(u32),
}

/// Option codes.
pub mod option {
    /// `NBD_OPT_EXPORT_NAME`.
    pub const EXPORT_NAME: u32 = 1;
    /// `NBD_OPT_ABORT`.
    pub const ABORT: u32 = 2;
    /// `NBD_OPT_LIST`.
    pub const LIST: u32 = 3;
    /// `NBD_OPT_STARTTLS`.
    pub const STARTTLS: u32 = 5;
    /// `NBD_OPT_INFO`.
    pub const INFO: u32 = 6;
    /// `NBD_OPT_GO`.
    pub const GO: u32 = 7;
    /// `NBD_OPT_STRUCTURED_REPLY`.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// `NBD_OPT_LIST_META_CONTEXT`.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// `NBD_OPT_SET_META_CONTEXT`.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of `INFO` blocks.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The canonical name of the export.
    pub const NAME: u16 = 1;
    /// A line of description.
    pub const DESCRIPTION: u16 = 2;
    /// Smallest, preferred and largest request.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Answers to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reply {
    /// Done.
    Ack = 1,
    /// One export.
    Server = 2,
    /// One info block.
    Info = 3,
    /// One meta context.
    MetaContext = 4,
    /// The server does not know the option.
    Unsupported = 1 << 31 | 1,
    /// The server refuses the option.
    Policy = 1 << 31 | 2,
    /// The option is invalid, or not valid at this point.
    Invalid = 1 << 31 | 3,
    /// No such export.
    UnknownExport = 1 << 31 | 6,
    /// The data of the option are longer than the server accepts.
    TooBig = 1 << 31 | 9,
}

impl OptionHeader {
    /// Parses the header of an option.
    pub fn parse(bytes: &[u8; OPTION_HEADER_BYTES]) -> Result<OptionHeader, BadMagic> {
        let mut cursor = Cursor(bytes);
        let (magic, code, length) = (cursor.u64(), cursor.u32(), cursor.u32());
        match (magic, code, length) {
            (Some(OPTION_MAGIC), Some(code), Some(length)) => Ok(OptionHeader { code, length }),
            _ => Err(BadMagic(magic.unwrap_or(0))),
        }
    }

    /// The header as sent by a client.
    pub fn encode(&self) -> [u8; OPTION_HEADER_BYTES] {
        let mut out = [0; OPTION_HEADER_BYTES];
        out[..8].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        out[8..12].copy_from_slice(&self.code.to_be_bytes());
        out[12..].copy_from_slice(&self.length.to_be_bytes());
        out
    }
}

impl ClientOption {
    /// Parses the data of an option; `Err` is the answer if they are malformed.
    pub fn parse(code: u32, data: &[u8]) -> Result<ClientOption, Reply> {
        use option::*;
        let empty = |parsed| if data.is_empty() { Ok(parsed) } else { Err(Reply::Invalid) };
        match code {
            EXPORT_NAME => text(data).map(ClientOption::ExportName).ok_or(Reply::Invalid),
            ABORT => Ok(ClientOption::Abort),
            LIST => empty(ClientOption::List),
            STARTTLS => empty(ClientOption::StartTls),
            INFO | GO => parse_info(data, code == GO).ok_or(Reply::Invalid),
            STRUCTURED_REPLY => empty(ClientOption::StructuredReply),
            LIST_META_CONTEXT | SET_META_CONTEXT => {
                parse_meta_context(data, code == SET_META_CONTEXT).ok_or(Reply::Invalid)
            }
            other => Ok(ClientOption::Unknown(other)),
        }
    }

    /// The option with its header, as sent by a client.
    pub fn encode(&self) -> Vec<u8> {
        let (code, data) = match self {
            ClientOption::ExportName(name) => (option::EXPORT_NAME, name.clone().into_bytes()),
            ClientOption::Abort => (option::ABORT, Vec::new()),
            ClientOption::List => (option::LIST, Vec::new()),
            ClientOption::StartTls => (option::STARTTLS, Vec::new()),
            ClientOption::Info { name, wanted, go } => {
                let mut data = sized(name);
                data.extend((wanted.len() as u16).to_be_bytes());
                data.extend(wanted.iter().flat_map(|w| w.to_be_bytes()));
                (if *go { option::GO } else { option::INFO }, data)
            }
            ClientOption::StructuredReply => (option::STRUCTURED_REPLY, Vec::new()),
            ClientOption::MetaContext { name, queries, set } => {
                let mut data = sized(name);
                data.extend((queries.len() as u32).to_be_bytes());
                data.extend(queries.iter().flat_map(|q| sized(q)));
                (if *set { option::SET_META_CONTEXT } else { option::LIST_META_CONTEXT }, data)
            }
            ClientOption::Unknown(code) => (*code, Vec::new()),
        };
        let mut out = OptionHeader { code, length: data.len() as u32 }.encode().to_vec();
        out.extend(data);
        out
    }
}

/// The server's greeting.
pub fn greeting() -> [u8; GREETING_BYTES] {
    let mut out = [0; GREETING_BYTES];
    out[..8].copy_from_slice(&MAGIC.to_be_bytes());
    out[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    out[16..].copy_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    out
}

/// Appends an answer to the option `code`.
pub fn put_reply(out: &mut Vec<u8>, code: u32, reply: Reply, data: &[u8]) {
    out.extend(REPLY_MAGIC.to_be_bytes());
    out.extend(code.to_be_bytes());
    out.extend((reply as u32).to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}

/// The data of a [`Reply::Server`]: an export's name.
pub fn server_data(name: &str) -> Vec<u8> {
    sized(name)
}

/// The data of a [`Reply::MetaContext`].
pub fn meta_context_data(id: u32, name: &str) -> Vec<u8> {
    [&id.to_be_bytes(), name.as_bytes()].concat()
}

/// The data of an `INFO` block with size and flags; without its type, they also follow `EXPORT_NAME`.
pub fn export_data(bytes: u64, flags: u16) -> [u8; 10] {
    let mut out = [0; 10];
    out[..8].copy_from_slice(&bytes.to_be_bytes());
    out[8..].copy_from_slice(&flags.to_be_bytes());
    out
}

/// The data of a [`Reply::Info`] of type `kind`.
pub fn info_data(kind: u16, rest: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes(), rest].concat()
}

/// The rest of an `INFO_BLOCK_SIZE` block; all sizes in bytes.
pub fn block_size_data(smallest: u32, preferred: u32, largest: u32) -> Vec<u8> {
    [smallest, preferred, largest].iter().flat_map(|n| n.to_be_bytes()).collect()
}

fn parse_info(data: &[u8], go: bool) -> Option<ClientOption> {
    let mut cursor = Cursor(data);
    let name = sized_text(&mut cursor)?;
    let count = cursor.u16()?;
    // The count must match the data exactly, so that the list is never longer than the input.
    if cursor.0.len() != usize::from(count) * 2 {
        return None;
    }
    let wanted = cursor.0.chunks_exact(2).map(|c| u16::from_be_bytes([c[0], c[1]])).collect();
    Some(ClientOption::Info { name, wanted, go })
}

fn parse_meta_context(data: &[u8], set: bool) -> Option<ClientOption> {
    let mut cursor = Cursor(data);
    let name = sized_text(&mut cursor)?;
    let count = cursor.u32()?;
    if count > QUERIES_MAX {
        return None;
    }
    let queries = (0..count).map(|_| sized_text(&mut cursor)).collect::<Option<Vec<_>>>()?;
    cursor.0.is_empty().then_some(ClientOption::MetaContext { name, queries, set })
}

fn sized_text(cursor: &mut Cursor<'_>) -> Option<String> {
    let length = cursor.u32()?;
    text(cursor.bytes(usize::try_from(length).ok()?)?)
}

fn text(bytes: &[u8]) -> Option<String> {
    if bytes.len() > STRING_BYTES_MAX || bytes.contains(&0) {
        return None;
    }
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

fn sized(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}
