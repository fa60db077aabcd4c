//! Errors that name the store they are about.

use std::path::Path;
use vellum_base::Error;

/// Puts the path of the store in front of an error, unless the error already names it: users, and programs with several
/// open stores, need to know which one it is.
pub fn named(error: Error, path: &Path) -> Error {
    let path = path.display().to_string();
    match says(&error.to_string(), path.trim_end_matches('/')) {
        true => error,
        false => error.context(path),
    }
}

/// True if `text` mentions the path, as `PATH: what`, `PATH is what`, or `open PATH/CURRENT: what`. A path may be an
/// ordinary word.
fn says(text: &str, path: &str) -> bool {
    let rest = text.strip_prefix(path).unwrap_or_default();
    let begins = [":", "/", " is ", " holds "].iter().any(|next| rest.starts_with(next));
    begins || [':', '/'].iter().any(|end| text.contains(&format!(" {path}{end}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_once() {
        let of = |what: &str, path: &str| named(Error::invalid(what), Path::new(path)).to_string();
        for said in
            ["s: no", "s is open in another process", "open s: no", "open s/CURRENT: no", "s/1.log: no"]
        {
            assert_eq!((of(said, "s"), of(said, "s/")), (said.into(), said.into()));
        }
        assert_eq!(of("so it is; as in others", "s"), "s: so it is; as in others");
        assert_eq!(of("open /dev/s: no", "s"), "s: open /dev/s: no");
        assert_eq!(of("a log is damaged", "a"), "a: a log is damaged");
    }
}
