//! A process that may open few files: a store has one for each table.

use crate::harness::{directory, open, scattered};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;
use std::process::Command;
use vellum_base::Kind;
use vellum_kv::Map;

/// Tells the child where its store is.
const CHILD: &str = "VELLUM_KV_FEW_FILES_CHILD";

/// What the limit is reached by is refused, and goes on where it is raised.
fn reach_the_limit(dir: &Path) {
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(60), ..before }).unwrap();
    let store = open(directory(dir)).unwrap();
    let put = |n: u32| store.put(&scattered(n), &[n as u8; 900]);
    let (reached, error) = (0..200_000).find_map(|n| Some((n, put(n).err()?))).unwrap();
    assert_eq!(error.kind(), Kind::NoSpace, "{error}");
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    setrlimit(Resource::Nofile, before).unwrap();
    store.compact().unwrap();
    (reached..reached + 1000).for_each(|n| put(n).unwrap());
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    store.close().unwrap();
    let store = open(directory(dir)).unwrap();
    for n in 0..reached + 1000 {
        let value = store.get(&scattered(n)).unwrap();
        assert_eq!(value.as_deref(), Some(&[n as u8; 900][..]), "{n}");
    }
}

#[test]
fn too_many_open_files_are_refused_by_name_and_not_for_good() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return reach_the_limit(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let name = "open_files::too_many_open_files_are_refused_by_name_and_not_for_good";
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name]).env(CHILD, dir.path());
    let ran = child.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}
