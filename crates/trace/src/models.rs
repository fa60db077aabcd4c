//! Content models, for traces without contents.
//!
//! An engine saves by finding equal contents, so a replay is meaningless unless the model is stated. Each model is a
//! pure function of its seed and the order of requests.

use crate::content::Content;
use crate::generate::{Seeded, Zipf};
use crate::request::{ByteLen, Request, RequestKind};
use crate::source::{RequestSource, RowCounts};
use vellum_base::{Error, Result};
use vellum_codes::pattern::Pattern;

/// Ids of popular contents are separate from those of unique ones.
const POPULAR: u64 = 1 << 39;

/// How the contents of written sectors are related.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ContentModel {
    /// No content is ever written twice.
    Unique,
    /// A share of the sectors gets one of `contents` popular contents, Zipf distributed; the others are unique.
    Duplicates {
        /// Share of written sectors, 0 to 1.
        share: f64,
        /// Number of popular contents.
        contents: u64,
        /// Exponent of the Zipf distribution; 0 is uniform.
        skew: f64,
    },
}

/// Adds contents to every write of `source` that has none. Partially covered sectors get a new content as a whole, too:
/// it stands for the sector after the write.
pub fn with_contents<S: RequestSource>(source: S, model: ContentModel, seed: u64) -> Result<Modelled<S>> {
    let popular = match model {
        ContentModel::Unique => None,
        ContentModel::Duplicates { share, contents, skew } if (0.0..=1.0).contains(&share) => {
            Some((share, Zipf::new(contents, skew)?))
        }
        ContentModel::Duplicates { share, .. } => {
            return Err(Error::invalid(format!("the share of duplicates is between 0 and 1, not {share}")));
        }
    };
    Ok(Modelled { source, popular, rng: Seeded::new(seed), base: seed << 40, written: 0 })
}

/// See [`with_contents`].
pub struct Modelled<S> {
    source: S,
    popular: Option<(f64, Zipf)>,
    rng: Seeded,
    base: u64,
    written: u64,
}

impl<S> Modelled<S> {
    fn content(&mut self) -> Content {
        let id = match &self.popular {
            Some((share, zipf)) if self.rng.chance(*share) => POPULAR | zipf.sample(&mut self.rng),
            _ => {
                self.written += 1;
                self.written & (POPULAR - 1)
            }
        };
        Content::Pattern(Pattern::unique(self.base | id))
    }
}

impl<S: RequestSource> Iterator for Modelled<S> {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Result<Request>> {
        let mut item = self.source.next()?;
        if let Ok(request) = &mut item
            && request.kind == RequestKind::Write
            && request.contents.is_empty()
        {
            let (_, sectors) = request.sectors();
            request.contents = (0..sectors).map(|_| self.content()).collect();
        }
        Some(item)
    }
}

impl<S: RequestSource> RequestSource for Modelled<S> {
    fn rows(&self) -> RowCounts {
        self.source.rows()
    }
    fn device_names(&self) -> Vec<String> {
        self.source.device_names()
    }
    fn device_bytes(&self) -> Option<ByteLen> {
        self.source.device_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::ByteOffset;
    use crate::source::from_iter;
    use std::collections::BTreeMap;
    use vellum_base::Nanos;

    fn contents(model: ContentModel, seed: u64) -> Vec<Content> {
        let writes = (0..5000u64)
            .map(|i| Request::new(Nanos(i), RequestKind::Write, ByteOffset(i * 8192 + 512), ByteLen(4096)));
        let source = with_contents(from_iter(writes), model, seed).unwrap();
        source.flat_map(|r| r.unwrap().contents).collect()
    }

    fn distinct(contents: &[Content]) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for content in contents {
            *counts.entry(format!("{content:?}")).or_insert(0) += 1;
        }
        counts
    }

    #[test]
    fn unique_is_unique_and_covers_every_touched_sector() {
        let all = contents(ContentModel::Unique, 1);
        assert_eq!((all.len(), distinct(&all).len()), (10_000, 10_000));
        assert_eq!(all, contents(ContentModel::Unique, 1));
        let both = [all, contents(ContentModel::Unique, 2)].concat();
        assert_eq!(distinct(&both).len(), 20_000);
    }

    #[test]
    fn duplicates_have_their_share_and_a_favourite() {
        let all = contents(ContentModel::Duplicates { share: 0.4, contents: 100, skew: 1.0 }, 7);
        let counts = distinct(&all);
        let unique = counts.values().filter(|n| **n == 1).count();
        assert!((5800..6200).contains(&unique), "{unique}");
        assert!(counts.len() < unique + 101);
        let most = *counts.values().max().unwrap();
        assert!((650..900).contains(&most), "1/H(100) of 4000 is 771, not {most}");
        let bad = ContentModel::Duplicates { share: 1.5, contents: 100, skew: 1.0 };
        assert!(with_contents(from_iter(std::iter::empty()), bad, 1).is_err());
    }
}
