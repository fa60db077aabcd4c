//! A scrambler in a file (docs/formats/scrambler.md).

use super::{AddressKind, read_text};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::path::Path;
use vellum_base::{Error, Result};
use vellum_codes::scrambler::{BitOrder, Lfsr, Scrambler, SeedMap};

const FORMAT: &str = "vellum-scrambler";
const VERSION: u32 = 1;
const FILE_BYTES_MAX: u64 = 64 << 10;
/// A base, and a difference of addresses for each of 64 bits.
const FACTS_MAX: usize = 65;
/// Bytes of each fact's keystream that the proof covers.
const PROOF_BYTES: usize = 64;

/// A scrambler, the kind of its addresses, and the evidence for it.
#[derive(Clone, Debug)]
pub struct ScramblerFile {
    /// What keystreams depend on.
    pub address: AddressKind,
    /// Length of keystreams as far as observed, in bytes.
    pub piece_bytes: usize,
    /// The scrambler.
    pub scrambler: Scrambler,
    /// The evidence, if it was learned.
    pub evidence: Option<Evidence>,
}

/// What a scrambler was learned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Number of addresses used for learning.
    pub learned: usize,
    /// Number of these predicted by others.
    pub checks: usize,
    /// Number of addresses not used for learning, all predicted.
    pub fresh: usize,
    /// Number of different patterns written.
    pub patterns: usize,
    /// Number of bits in all pieces.
    pub bits: u64,
    /// Number of wrong bits among them.
    pub bits_wrong: u64,
}

/// Form of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    format: String,
    version: u32,
    address: AddressKind,
    piece_bytes: usize,
    bit_order: Order,
    degree: u32,
    feedback: Hex,
    proof: Hex,
    facts: Vec<Fact>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    evidence: Option<Evidence>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    LsbFirst,
    MsbFirst,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fact {
    address: Hex,
    state: Hex,
}

/// A 64-bit number, which TOML does not have.
#[derive(Clone, Copy)]
struct Hex(u64);

impl ScramblerFile {
    /// Reads a scrambler file.
    pub fn read(path: &Path) -> Result<ScramblerFile> {
        let text = read_text(path, FILE_BYTES_MAX)?;
        ScramblerFile::from_text(&text).map_err(|e| e.context(path.display()))
    }

    /// Parses its text.
    pub fn from_text(text: &str) -> Result<ScramblerFile> {
        let text: Text = toml::from_str(text).map_err(|e| Error::corrupt(e.to_string()))?;
        if text.format != FORMAT || text.version != VERSION {
            let (format, version) = (&text.format, text.version);
            return Err(Error::corrupt(format!("format {format} {version}, not {FORMAT} {VERSION}")));
        }
        let lfsr = Lfsr::new(text.degree, text.feedback.0)
            .ok_or_else(|| Error::corrupt("degree and feedback are not those of a shift register"))?;
        if text.facts.len() > FACTS_MAX {
            return Err(Error::corrupt(format!("{} facts, at most {FACTS_MAX}", text.facts.len())));
        }
        let facts = text.facts.iter().map(|fact| (fact.address.0, fact.state.0));
        let map = SeedMap::of_facts(facts)
            .ok_or_else(|| Error::corrupt("the facts contradict each other, or are none"))?;
        let order = match text.bit_order {
            Order::LsbFirst => BitOrder::LsbFirst,
            Order::MsbFirst => BitOrder::MsbFirst,
        };
        let scrambler = Scrambler::new(lfsr, order, map);
        if u64::from(proof(&scrambler, text.piece_bytes)) != text.proof.0 {
            return Err(Error::corrupt("the proof is not that of these keystreams: the file was changed"));
        }
        let Text { address, piece_bytes, evidence, .. } = text;
        Ok(ScramblerFile { address, piece_bytes, scrambler, evidence })
    }

    /// Its text, as written to a file.
    pub fn to_text(&self) -> String {
        let scrambler = &self.scrambler;
        let facts = scrambler.map().facts();
        let text = Text {
            format: FORMAT.into(),
            version: VERSION,
            address: self.address,
            piece_bytes: self.piece_bytes,
            bit_order: match scrambler.order() {
                BitOrder::LsbFirst => Order::LsbFirst,
                BitOrder::MsbFirst => Order::MsbFirst,
            },
            degree: scrambler.lfsr().degree(),
            feedback: Hex(scrambler.lfsr().feedback()),
            proof: Hex(proof(scrambler, self.piece_bytes).into()),
            facts: facts.map(|(address, state)| Fact { address: Hex(address), state: Hex(state) }).collect(),
            evidence: self.evidence,
        };
        toml::to_string(&text).expect("a scrambler has a TOML form")
    }
}

/// CRC-32C over the length of pieces, and the address and the first keystream bytes of every fact.
fn proof(scrambler: &Scrambler, piece_bytes: usize) -> u32 {
    let mut bytes = (piece_bytes as u64).to_le_bytes().to_vec();
    for (address, _) in scrambler.map().facts() {
        let mut stream = [0; PROOF_BYTES];
        scrambler.xor_into(address, &mut stream).expect("facts are known");
        bytes.extend(address.to_le_bytes());
        bytes.extend(stream);
    }
    vellum_codes::crc32c(&bytes)
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{:#x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Hex, D::Error> {
        let text = String::deserialize(from)?;
        let digits = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
        let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        number
            .map(Hex)
            .ok_or_else(|| de::Error::custom(format!("'{text}' is no number like 0x1f of at most 64 bits")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> ScramblerFile {
        let map = SeedMap::of_facts((0..5).map(|i| (1u64 << (13 * i) >> 1, u64::MAX / (i + 3)))).unwrap();
        let scrambler = Scrambler::new(Lfsr::X64, BitOrder::MsbFirst, map);
        let evidence =
            Evidence { learned: 5, checks: 4, fresh: 4, patterns: 1, bits: 1 << 40, bits_wrong: 7 };
        ScramblerFile { address: AddressKind::Page, piece_bytes: 4096, scrambler, evidence: Some(evidence) }
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let text = file().to_text();
        let read = ScramblerFile::from_text(&text).unwrap();
        assert_eq!(read.scrambler.map(), file().scrambler.map());
        assert_eq!((read.evidence, read.address), (file().evidence, AddressKind::Page));
        assert_eq!(read.to_text(), text);
    }

    #[test]
    fn a_file_may_hold_anything() {
        let text = file().to_text();
        for at in 0..text.len() {
            for byte in [b'0', b'9', b'f', b'"', b'\n', b'-', 0x7F] {
                let mut changed = text.clone().into_bytes();
                changed[at] = byte;
                let changed = String::from_utf8(changed).unwrap();
                if let Ok(read) = ScramblerFile::from_text(&changed) {
                    assert_eq!(read.scrambler.map(), file().scrambler.map(), "byte {at}: {changed}");
                    assert_eq!(read.piece_bytes, 4096);
                }
            }
        }
    }

    #[test]
    fn a_changed_file_is_refused() {
        let text = file().to_text();
        let changes = [
            ("msb-first", "lsb-first"),
            ("degree = 64", "degree = 63"),
            ("degree = 64", "degree = 65"),
            ("feedback = \"0x1b\"", "feedback = \"0x1c\""),
            ("feedback = \"0x1b\"", "feedback = \"27\""),
            ("version = 1", "version = 2"),
            ("state = \"0x5555", "state = \"0x5554"),
            ("address = \"page\"", "address = \"moon\""),
            ("bit_order", "order"),
        ];
        for (from, to) in changes {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            assert!(ScramblerFile::from_text(&changed).is_err(), "{to}");
        }
        let many = text.clone() + &"[[facts]]\naddress = \"0x0\"\nstate = \"0x1\"\n".repeat(70);
        assert!(ScramblerFile::from_text(&many).is_err());
    }
}
