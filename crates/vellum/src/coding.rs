//! Coding of the pages of a stack's flash, as options and in TOML: `ecc`, `codeword` and `scrambler`.

use crate::as_text::as_text;
use crate::config::Config;
use std::fmt;
use std::str::FromStr;
use vellum_base::{Error, Result, Scrambling};
use vellum_media::coded::{Coding, Rate};

/// Default number of pages of a block after which keystreams repeat: the one found most often in drives.
const PERIOD: u32 = 128;

/// The rate of the error-correcting code, written `32/33`, `16/17` or `8/9`; or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ecc(pub Option<Rate>);

/// How data are scrambled, written `off`, `lba` (or `on`), `page` or `page:PERIOD`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrambler(pub Scrambling);

/// The coding that `config` asks for. Images have a code unless it is disabled; memory has one only if a code or a
/// scrambler is requested.
///
/// ```
/// use vellum::{Config, coding};
/// assert!(coding::of(&Config::ram(1 << 30))?.is_none());
/// assert_eq!(coding::of(&Config::image("d.vellum", 1 << 30))?.unwrap().code().name(), "1KiB-32/33");
/// # Ok::<(), vellum::base::Error>(())
/// ```
pub fn of(config: &Config) -> Result<Option<Coding>> {
    let (flash, scrambling) = (&config.flash, config.flash.scrambler.0);
    let is_wanted = config.image.is_some() || scrambling != Scrambling::Off || flash.codeword.is_some();
    let rate = match flash.ecc {
        Some(Ecc(rate)) => rate,
        None => is_wanted.then_some(Coding::PAPER.rate),
    };
    let Some(rate) = rate else {
        return match scrambling == Scrambling::Off && flash.codeword.is_none() {
            true => Ok(None),
            false => Err(Error::invalid(
                "a scrambler and a size of codewords go with a code: ecc must not be none",
            )),
        };
    };
    let codeword = flash.codeword.map_or(u64::from(Coding::PAPER.codeword_bytes), |size| size.0);
    let codeword_bytes = u32::try_from(codeword).unwrap_or(u32::MAX);
    let coding = Coding { codeword_bytes, rate, scrambling };
    coding.validate()?;
    Ok(Some(coding))
}

/// As options: the rate of the code, its codeword size, the scrambler.
pub fn text(coding: Option<&Coding>) -> (String, u32, String) {
    let scrambler = Scrambler(coding.map_or(Scrambling::Off, |coding| coding.scrambling));
    let codeword_bytes = coding.map_or(0, |coding| coding.codeword_bytes);
    (Ecc(coding.map(|coding| coding.rate)).to_string(), codeword_bytes, scrambler.to_string())
}

impl FromStr for Ecc {
    type Err = Error;
    fn from_str(text: &str) -> Result<Ecc> {
        Ok(Ecc(match text {
            "none" => None,
            "32/33" => Some(Rate::R32_33),
            "16/17" => Some(Rate::R16_17),
            "8/9" => Some(Rate::R8_9),
            _ => return Err(Error::invalid(format!("no code of rate '{text}': 32/33, 16/17, 8/9 or none"))),
        }))
    }
}

impl fmt::Display for Ecc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            None => "none",
            Some(Rate::R32_33) => "32/33",
            Some(Rate::R16_17) => "16/17",
            Some(Rate::R8_9) => "8/9",
        })
    }
}

impl FromStr for Scrambler {
    type Err = Error;
    fn from_str(text: &str) -> Result<Scrambler> {
        let period = |text: &str| text.parse().ok().filter(|period: &u32| *period > 0);
        Ok(Scrambler(match text {
            "off" => Scrambling::Off,
            "on" | "lba" => Scrambling::BySector,
            "page" => Scrambling::ByPage { period: PERIOD },
            _ => match text.strip_prefix("page:").and_then(period) {
                Some(period) => Scrambling::ByPage { period },
                None => {
                    return Err(Error::invalid(format!(
                        "no scrambler '{text}': off, lba, page or page:PERIOD"
                    )));
                }
            },
        }))
    }
}

impl fmt::Display for Scrambler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Scrambling::Off => f.write_str("off"),
            Scrambling::BySector => f.write_str("lba"),
            Scrambling::ByPage { period } => write!(f, "page:{period}"),
        }
    }
}

as_text!(Ecc: ToString::to_string, Scrambler: ToString::to_string);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Size;

    #[test]
    fn options_are_written_as_they_are_read() {
        for text in ["none", "32/33", "16/17", "8/9"] {
            assert_eq!(text.parse::<Ecc>().unwrap().to_string(), text);
        }
        for text in ["off", "lba", "page:64"] {
            assert_eq!(text.parse::<Scrambler>().unwrap().to_string(), text);
        }
        assert_eq!("on".parse::<Scrambler>().unwrap(), "lba".parse().unwrap());
        assert_eq!("page".parse::<Scrambler>().unwrap(), "page:128".parse().unwrap());
        for bad in ["", "page:", "page:0", "page:x", "page:-1", "LBA"] {
            assert!(bad.parse::<Scrambler>().is_err(), "{bad}");
        }
        assert!("9/10".parse::<Ecc>().is_err());
    }

    #[test]
    fn memory_has_a_code_if_something_asks_for_one() {
        let coded = |change: fn(&mut Config)| {
            let mut config = Config::ram(1 << 30);
            change(&mut config);
            of(&config)
        };
        assert!(coded(|_| {}).unwrap().is_none());
        assert!(coded(|c| c.flash.scrambler.0 = Scrambling::BySector).unwrap().is_some());
        assert_eq!(coded(|c| c.flash.codeword = Some(Size(4096))).unwrap().unwrap().codeword_bytes, 4096);
        assert!(coded(|c| c.flash.codeword = Some(Size(1 << 40))).is_err());
        assert!(coded(|c| c.image = Some("x".into())).unwrap().is_some());
        assert!(
            coded(|c| {
                c.image = Some("x".into());
                c.flash.ecc = Some(Ecc(None));
            })
            .unwrap()
            .is_none()
        );
        assert!(
            coded(|c| {
                c.flash.ecc = Some(Ecc(None));
                c.flash.scrambler.0 = Scrambling::BySector;
            })
            .is_err()
        );
    }
}
