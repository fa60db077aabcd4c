//! A fresh ext4 zeroes its inode tables in the background, past the journal, while the first files are written and
//! synced. The paper's rule takes those zeros for copies of journaled sectors that merely begin with zeros (trap T2).

use super::bridge::{BRIDGE_TOOLS, Bridge, FILE_DOOR, Way};
use super::files::noise;
use super::host::{EXT_TOOLS, can_mount, have, sh, wait_until};
use crate::support::Home;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

const TOOLS: &[&str] = &["nbdkit", "dumpe2fs"];
/// Two groups, both of which begin with metadata, so no bitmap begins with zeros.
const MKFS: &str = "mkfs.ext4 -q -b 4096 -J size=4 -N 16384";
const PIECES_MAX: u64 = 2000;
const HOLE_BYTES: usize = 512;
const SIZE: &str = "160MiB";
const JOURNAL_BYTES: usize = 4 << 20;
/// After zeroing a table the kernel waits this many times as long as that took before the next.
const ZEROING: &str = "init_itable=40";

/// Expected contents of the files `log` and `table`.
type Contents = [(&'static str, Vec<u8>); 2];

/// Writes and syncs a file in small pieces until the kernel has zeroed all inode tables.
fn live_through_the_zeroing(home: &Home, bridge: &Bridge) -> Contents {
    sh(&format!("{MKFS} {}", bridge.device));
    let (mut zeroed, groups) = zeroed_groups(&bridge.device);
    assert!(zeroed < groups, "mkfs has zeroed {zeroed} tables of {groups} itself");
    bridge.mount("ext4", "data=journal,noinit_itable");
    let create = |name: &str| File::create(home.path("mnt").join(name)).unwrap();
    let (table, mut log) = (create("table"), create("log"));
    // The superblock begins with zeros, too. Once the journal has wrapped it is no longer in there, and the paper's
    // rule knows at most one such sector. The kernel would begin within five seconds; now we choose the moment.
    let mut written = noise(1, JOURNAL_BYTES * 3 / 2);
    log.write_all(&written).unwrap();
    log.sync_all().unwrap();
    sh(&format!("mount -o remount,{ZEROING} {}", home.path("mnt").display()));
    // Journaled when the log is synced, and not yet at home (where a separate sync would write it) when the next zeros
    // come: the paper's rule takes zeros for these.
    let hole_in_front = |number| {
        let bytes = noise(number, HOLE_BYTES);
        table.write_all_at(&bytes, HOLE_BYTES as u64).unwrap();
        [vec![0; HOLE_BYTES], bytes].concat()
    };
    let mut number = 0;
    let mut last = hole_in_front(number);
    wait_until("the zeroing", || {
        number += 1;
        let piece = noise(number, 700);
        log.write_all(&piece).unwrap();
        log.sync_data().unwrap();
        written.extend(piece);
        let now = zeroed_groups(&bridge.device).0;
        if now > zeroed {
            zeroed = now;
            last = hole_in_front(number);
        }
        assert!(number < PIECES_MAX, "nothing is being zeroed");
        zeroed == groups
    });
    drop((table, log));
    bridge.unmount();
    [("log", written), ("table", last)]
}

/// Number of groups whose inode table is zeroed, and of all groups.
fn zeroed_groups(device: &str) -> (usize, usize) {
    let said = sh(&format!("dumpe2fs {device} 2>&1"));
    let groups = said.lines().filter(|line| line.starts_with("Group ") && line.contains("(Blocks "));
    (said.matches("ITABLE_ZEROED").count(), groups.count())
}

/// Damage: files that have changed, and sectors of inode tables that hold what was written to `table`.
fn damage(home: &Home, bridge: &Bridge, contents: &Contents) -> Vec<String> {
    bridge.mount("ext4", "ro");
    let changed = contents
        .iter()
        .filter(|(name, bytes)| std::fs::read(home.path("mnt").join(name)).ok().as_ref() != Some(bytes));
    let mut damage: Vec<_> = changed.map(|(name, _)| format!("{name} has changed")).collect();
    bridge.unmount();
    let garbage = garbage(home, bridge).into_iter();
    damage.extend(garbage.map(|sector| format!("garbage in the inode table at sector {sector}")));
    damage
}

fn garbage(home: &Home, bridge: &Bridge) -> Vec<u64> {
    let said = sh(&format!("dumpe2fs {} 2>&1", bridge.device));
    // Not from the loop device: the kernel has cached the previous contents.
    let device = File::open(home.path("file")).unwrap();
    let written: Vec<_> = (0..PIECES_MAX).map(|number| noise(number, HOLE_BYTES)).collect();
    let tables = said.lines().filter_map(|line| line.trim().strip_prefix("Inode table at "));
    let tables = tables.filter_map(|range| range.split(' ').next()?.split_once('-'));
    let tables: Vec<(u64, u64)> =
        tables.map(|(first, last)| (first.parse().unwrap(), last.parse().unwrap())).collect();
    assert_eq!(tables.len(), zeroed_groups(&bridge.device).1);
    let is_garbage = |sector: &u64| {
        let mut bytes = vec![0; HOLE_BYTES];
        device.read_exact_at(&mut bytes, sector * 4096 + HOLE_BYTES as u64).unwrap();
        written.contains(&bytes)
    };
    tables.into_iter().flat_map(|(first, last)| first..=last).filter(is_garbage).collect()
}

#[test]
fn zeros_that_pass_no_journal_are_zeros_except_by_the_papers_rule() {
    if !can_mount(EXT_TOOLS) || !have(BRIDGE_TOOLS) || !have(TOOLS) {
        return;
    }
    let home = Home::new();
    let (recorder, _) = home.start(&format!("disk record --ram {SIZE} --to t.vtrace {FILE_DOOR}"));
    let bridge = Bridge::new(&home, &Way { plain_writes: true, ..Way::default() });
    let contents = live_through_the_zeroing(&home, &bridge);
    let damage = damage(&home, &bridge, &contents);
    assert!(damage.is_empty(), "{damage:?}");
    sh(&format!("e2fsck -fn {}", bridge.device));
    drop(bridge);
    assert_eq!(recorder.interrupt().0, 0);

    // The same requests by the paper's rule, with every sector compared with what was written last.
    let replayed = home.json("replay t.vtrace --compare woj-paper,journal");
    let wrong = |mode: usize| replayed["modes"][mode]["wrong_sectors"].as_u64().unwrap();
    assert!(wrong(0) > 0, "{replayed}");
    assert_eq!(wrong(1), 0, "{replayed}");
}
