//! Values that are written in TOML and JSON as on the command line: as text.

/// Serializes values by the expression after the colon, and deserializes them by `FromStr`, whose error is reported.
macro_rules! as_text {
    ($($value:ty: $text:path),+) => {$(
        impl serde::Serialize for $value {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&$text(self))
            }
        }

        impl<'de> serde::Deserialize<'de> for $value {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

pub(crate) use as_text;
