//! Rules of the code base: which crate may depend on which, and tidiness.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The floor of each crate. A crate may depend only on lower floors.
const FLOORS: [(&str, u32); 13] = [
    ("vellum-base", 0),
    ("vellum-codes", 1),
    ("vellum-sim", 1),
    ("vellum-media", 2),
    ("vellum-disk", 2),
    ("vellum-trace", 2),
    ("vellum-kv", 2),
    ("vellum-array", 2),
    ("vellum-serve", 3),
    ("vellum-lab", 3),
    ("vellum", 4),
    ("vellum-python", 5),
    ("vellum-fuzz", 5),
];
/// What a crate of the middle floor may depend on, and what its tests may use in addition.
const MIDDLE_USES: [&str; 2] = ["vellum-base", "vellum-codes"];
const MIDDLE_TESTS_USE: [&str; 2] = ["vellum-sim", "vellum-media"];
const MIDDLE: u32 = 2;

const LINES_MAX: usize = 500;
const COMMENT_COLUMNS_MAX: usize = 120;

struct Edge {
    from: String,
    to: String,
    dev: bool,
}

/// Why an edge is not allowed; `None` if it is.
fn objection(edge: &Edge) -> Option<String> {
    let floor = |name: &str| FLOORS.iter().find(|(n, _)| *n == name).map(|(_, floor)| *floor);
    let (Some(from), Some(to)) = (floor(&edge.from), floor(&edge.to)) else {
        return Some(format!("{} or {} has no floor: say in FLOORS where it lives", edge.from, edge.to));
    };
    let middle_allows =
        MIDDLE_USES.contains(&edge.to.as_str()) || edge.dev && MIDDLE_TESTS_USE.contains(&edge.to.as_str());
    let allowed = if from == MIDDLE { middle_allows } else { to < from };
    (!allowed).then(|| {
        format!("{} must not depend on {}{}", edge.from, edge.to, if edge.dev { " (dev)" } else { "" })
    })
}

fn edges() -> Vec<Edge> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&out.stdout).unwrap();
    let mut edges = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = dependency["name"].as_str().unwrap();
            if to == "vellum" || to.starts_with("vellum-") {
                let from = package["name"].as_str().unwrap().to_string();
                edges.push(Edge { from, to: to.to_string(), dev: dependency["kind"] == "dev" });
            }
        }
    }
    edges
}

#[test]
fn the_one_rule_no_edge_crosses() {
    let edges = edges();
    assert!(edges.len() > 20, "cargo metadata knows only {} edges", edges.len());
    let objections: Vec<_> = edges.iter().filter_map(objection).collect();
    assert!(objections.is_empty(), "{objections:#?}");
}

#[test]
fn the_one_rule_can_fail() {
    let edge = |from: &str, to: &str, dev| Edge { from: from.into(), to: to.into(), dev };
    for (from, to, dev) in [
        ("vellum-disk", "vellum-media", false),
        ("vellum-disk", "vellum-trace", true),
        ("vellum-disk", "vellum-sim", false),
        ("vellum-media", "vellum-serve", true),
        ("vellum-base", "vellum-codes", false),
        ("vellum-sim", "vellum-disk", false),
        ("vellum-serve", "vellum-lab", false),
        ("vellum-lab", "vellum", false),
        ("vellum-disk", "vellum-unheard-of", false),
    ] {
        assert!(objection(&edge(from, to, dev)).is_some(), "{from} -> {to}");
    }
    for (from, to, dev) in [
        ("vellum-disk", "vellum-base", false),
        ("vellum-disk", "vellum-media", true),
        ("vellum-lab", "vellum-disk", false),
        ("vellum", "vellum-serve", false),
    ] {
        assert!(objection(&edge(from, to, dev)).is_none(), "{from} -> {to}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every file below `dir` with this extension, except build output.
fn files(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir()
            && !name.starts_with('.')
            && name != "target"
            && name != "corpus"
            && name != "artifacts"
        {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

fn sources(extension: &str) -> BTreeMap<String, String> {
    let mut found = Vec::new();
    files(&root(), extension, &mut found);
    let name = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    found.into_iter().map(|path| (name(&path), std::fs::read_to_string(&path).unwrap())).collect()
}

/// In the key-value store, media and logs do not depend on an engine, and engines do not depend on each other.
#[test]
fn the_parts_of_the_store_know_only_what_is_below_them() {
    let rules = [
        ("/kv/src/media/", "crate::lsm"),
        ("/kv/src/media/", "crate::log::"),
        ("/kv/src/journal/", "crate::lsm"),
        ("/kv/src/freewrite/", "crate::lsm"),
        ("/kv/src/log/", "crate::lsm"),
        ("/kv/src/lsm/", "crate::log::"),
    ];
    let sources = sources("rs");
    let crossing = |(part, not): (&str, &str)| {
        let part: Vec<_> = sources.iter().filter(|(path, _)| path.contains(part)).collect();
        assert!(!part.is_empty(), "{not}");
        part.into_iter().find(|(_, text)| text.contains(not)).map(|(path, _)| format!("{path} knows {not}"))
    };
    assert_eq!(rules.into_iter().find_map(crossing), None);
}

#[test]
fn the_examples_of_the_readme_are_those_that_compile() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let readme = read("README.md");
    let shown: Vec<_> = readme.split("```rust\n").skip(1).map(|rest| rest.split("```").next()).collect();
    let examples = ["crates/vellum/examples/books.rs", "crates/kv/examples/alone.rs"];
    assert_eq!(shown.len(), examples.len());
    for (path, shown) in examples.iter().zip(shown) {
        assert!(read(path).ends_with(shown.unwrap()), "{path}");
    }
    let most = format!("at most {} (`KEYSPACES_MAX`)", vellum::kv::KEYSPACES_MAX);
    assert!(readme.contains(&most), "{most}");
}

#[test]
fn nothing_is_left_to_do_in_comments() {
    // In pieces, so that this file passes its own test.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("todo", "!(")];
    for (name, text) in sources("rs") {
        for (number, line) in text.lines().enumerate() {
            assert!(!marks.iter().any(|m| line.contains(m)), "{name}:{}: {line}", number + 1);
        }
    }
}

#[test]
fn files_stay_short() {
    for (name, text) in sources("rs") {
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{name} has {lines} lines, more than {LINES_MAX}: one file, one concept");
    }
}

/// The formatter does not wrap comments.
#[test]
fn comments_are_no_wider_than_a_window() {
    let mut wide = Vec::new();
    for (name, text) in sources("rs") {
        for (number, line) in text.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            let columns = line.chars().count();
            if is_comment && columns > COMMENT_COLUMNS_MAX {
                wide.push(format!("{name}:{}: {columns} columns", number + 1));
            }
        }
    }
    assert_eq!(wide, Vec::<String>::new());
}

#[test]
fn every_page_has_one_title() {
    let pages = sources("md");
    assert!(pages.len() > 3);
    for (name, text) in pages {
        let mut fenced = false;
        let titles = text.lines().filter(|line| {
            fenced ^= line.trim_start().starts_with("```");
            !fenced && line.starts_with("# ")
        });
        assert_eq!(titles.count(), 1, "{name} needs exactly one '# Title'");
    }
}
