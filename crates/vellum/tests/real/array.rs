//! ext4 on cached arrays, mounted in one step, under the failures that matter: the server is killed, the SSD is lost,
//! disks fail and are rebuilt while files are written. Every synced file is there, e2fsck finds nothing, and parity
//! agrees with data.
//!
//! The moments are drawn from VELLUM_SEED (printed), 1 by default.

use super::bridge::{Loop, NBD_DOOR, Way, attach, uri};
use super::host::{EXT_TOOLS, can_mount, fsck_is_content, sh, try_sh, wait_until};
use super::synced::{Synced, seed, until_a_random_moment};
use crate::support::Home;
use std::sync::atomic::Ordering::SeqCst;

const MOUNT: &str = "array mount a.toml mnt --fs ext4 --mkfs-options -Jsize=4";

/// An array with a file system, and what was synced to it.
struct Mounted {
    home: Home,
    synced: Synced,
    seed: u64,
}

impl Mounted {
    fn new(level: u8, members: &str, policy: &str) -> Mounted {
        let home = Home::new();
        home.ok(&format!(
            "array create a.toml --level {level} --chunk 16KiB --size 40MiB --members {members} \
             --cache ssd --cache-size 24MiB --policy {policy}"
        ));
        Mounted { home, synced: Synced::new(), seed: seed() }
    }

    /// Mounts and checks what was synced before. Files are written and synced while `meanwhile` acts on the array; then
    /// the server is killed.
    fn until_kill_9(&mut self, when: &str, meanwhile: impl FnOnce(&Home)) {
        let (server, ready) = self.home.start(MOUNT);
        assert_eq!(ready["door"], "mount");
        let mnt = self.home.path("mnt");
        self.synced.check(&mnt, when);
        let (count, before) = (self.synced.count.clone(), self.synced.count.load(SeqCst));
        let writer = std::mem::take(&mut self.synced).go_on(&mnt);
        self.seed += 1;
        until_a_random_moment(&count, before, self.seed);
        meanwhile(&self.home);
        until_a_random_moment(&count, count.load(SeqCst), !self.seed);
        server.kill();
        self.synced = writer.join().unwrap();
        assert!(self.synced.files.len() as u64 > before, "{when}: nothing was synced");
    }

    /// Everything is in order, and the array has full redundancy.
    fn is_well(&self, when: &str) {
        let (server, _) = self.home.start(MOUNT);
        self.synced.check(&self.home.path("mnt"), when);
        assert_eq!(server.interrupt().0, 0, "{when}");
        let home = &self.home;
        home.ok("array flush a.toml");
        let scrubbed = home.json("array scrub a.toml");
        for field in ["mismatches", "stale_rows", "degraded_rows"] {
            assert_eq!(scrubbed[field], 0, "{when}: {scrubbed}");
        }
        fsck_is_content(home, "array serve a.toml");
    }
}

/// A member fails under load, and another is added and rebuilt under load.
fn fail_and_rebuild(home: &Home, role: usize) {
    home.ok(&format!("array fail a.toml {role}"));
    assert_eq!(home.run("array detail a.toml").code, 1, "it is degraded");
    home.ok(&format!("array add a.toml new{role}"));
    wait_until("the rebuild", || home.run("array detail a.toml").code == 0);
}

fn survives(level: u8, members: &str, policy: &str) {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let mut array = Mounted::new(level, members, policy);
    array.until_kill_9("at first", |_| ());
    array.until_kill_9("after kill -9", |home| {
        let cache = &home.json("array detail a.toml")["cache"];
        assert_eq!(cache["at_risk_bytes"], 0, "{cache}");
        assert!(cache["write_hits"].as_u64().unwrap() > 0, "{cache}");
    });
    std::fs::remove_file(array.home.path("ssd")).unwrap();
    array.home.ok("array detach-cache --force a.toml");
    array.is_well("after kill -9 and the loss of the SSD");

    array.home.ok("array attach-cache a.toml ssd2 --size 24MiB");
    let parities = usize::from(level) - 4;
    array.until_kill_9("with a new SSD", |home| (0..parities).for_each(|role| fail_and_rebuild(home, role)));
    array.until_kill_9("after members were rebuilt", |home| {
        drop(home.ok("array detach-cache --force a.toml"))
    });
    array.is_well("after the SSD was taken away under load");
}

#[test]
fn ext4_on_a_cached_raid_5_survives_kill_9_and_the_loss_of_ssd_and_disk() {
    survives(5, "d0 d1 d2 d3", "kdd-paper");
}

#[test]
fn ext4_on_a_cached_raid_6_survives_kill_9_and_the_loss_of_ssd_and_disks() {
    survives(6, "d0 d1 d2 d3 d4", "kdd");
}

/// Killed while a member is out, while its replacement is rebuilt, and with the SSD truncated under load.
#[test]
fn ext4_on_a_degraded_array_survives_kill_9_and_so_does_its_rebuild() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let mut array = Mounted::new(5, "d0 d1 d2 d3", "kdd");
    array.until_kill_9("at first", |home| drop(home.ok("array fail a.toml 1")));
    array.until_kill_9("killed while degraded", |home| {
        assert_eq!(home.run("array detail a.toml").code, 1, "it is degraded still");
        home.ok("array add a.toml new1");
    });
    array.until_kill_9("killed while rebuilt", |home| {
        wait_until("the rebuild", || home.run("array detail a.toml").code == 0);
        let ssd = std::fs::OpenOptions::new().write(true).open(home.path("ssd")).unwrap();
        ssd.set_len(1 << 20).unwrap();
        wait_until("the SSD to be let go", || {
            let seen: serde_json::Value =
                serde_json::from_str(&home.run("array detail a.toml --json").out).unwrap();
            seen["cache"]["detached"].is_string()
        });
    });
    array.home.ok("array detach-cache --force a.toml");
    array.is_well("after all that");
}

#[test]
fn a_blank_array_is_formatted_and_data_are_not() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 40MiB --members d0 d1 d2");
    let (server, _) = home.start("array serve a.toml --fuse file");
    std::fs::OpenOptions::new()
        .write(true)
        .open(home.path("file"))
        .and_then(|mut file| std::io::Write::write_all(&mut file, &[7; 4096]))
        .unwrap();
    assert_eq!(server.interrupt().0, 0);
    let said = home.run("array mount a.toml mnt");
    said.failed(3, "mount the file system");
    assert!(said.err.contains("there is data on the array, but no file system"), "{}", said.err);
    let (mounted, _) = home.start("array mount a.toml mnt --format");
    home.run("array mount a.toml other").failed(5, "a.toml is served");
    std::fs::write(home.path("mnt/kept"), "kept").unwrap();
    assert_eq!(mounted.interrupt().0, 0);
    let (mounted, _) = home.start("array mount a.toml mnt --read-only");
    assert_eq!(std::fs::read(home.path("mnt/kept")).unwrap(), b"kept");
    assert!(std::fs::write(home.path("mnt/more"), "more").is_err());
    assert_eq!(mounted.interrupt().0, 0);
}

/// An array that was never written to is blank after a rebuild.
#[test]
fn an_array_that_is_blank_stays_blank_over_a_rebuild() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 40MiB --members d0 d1 d2");
    home.ok("array fail a.toml d1");
    home.ok("array add a.toml d3");
    home.ok("array rebuild a.toml");
    let (mounted, _) = home.start("array mount a.toml mnt");
    std::fs::write(home.path("mnt/kept"), "kept").unwrap();
    assert_eq!(mounted.interrupt().0, 0);
}

/// A member set read-only is missing, but not lost: orders that need all members are refused and change nothing.
#[test]
fn a_member_that_is_set_read_only_is_refused_when_it_is_opened() {
    if !can_mount(&["losetup", "blockdev"]) {
        return;
    }
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2");
    let device = Loop(attach(&home.path("d1"), &Way { sector_bytes: 512, ..Way::default() }));
    let text = std::fs::read_to_string(home.path("a.toml")).unwrap();
    std::fs::write(home.path("a.toml"), text.replace("\"d1\"", &format!("{:?}", device.0))).unwrap();
    home.ok("array flush a.toml");
    sh(&format!("blockdev --setro {}", device.0));
    for refused in ["array flush a.toml", "array scrub a.toml"] {
        home.run(refused).failed(3, &format!("write to {}: read-only", device.0));
    }
    let create = format!("array create b.toml --level 5 --members {} d3 d4 --erase --size 20MiB", device.0);
    home.run(&create).failed(3, "read-only");
    sh(&format!("blockdev --setrw {}", device.0));
    assert_eq!(home.json("array detail a.toml")["state"], "clean");
    home.ok("array scrub a.toml");
}

/// A file system without holes, below a home, and a loop device on a file of it, which cannot unmap either.
struct WithoutHoles {
    dir: std::path::PathBuf,
    device: String,
}

impl WithoutHoles {
    fn new(home: &Home) -> WithoutHoles {
        let dir = home.path("ram");
        std::fs::create_dir(&dir).unwrap();
        sh(&format!("mount -t ramfs ramfs {}", dir.display()));
        std::fs::File::create(dir.join("l")).unwrap().set_len(20 << 20).unwrap();
        let said = sh(&format!("losetup --find --show {}", dir.join("l").display()));
        WithoutHoles { dir, device: said.trim().to_string() }
    }
}

impl Drop for WithoutHoles {
    fn drop(&mut self) {
        try_sh(&format!("losetup -d {}; umount -l {}", self.device, self.dir.display()));
    }
}

/// A trim that would write zeros is not offered, and `mkfs` does without; where zeros are needed they are written.
#[test]
fn an_array_offers_trim_if_every_member_can() {
    if !can_mount(&[EXT_TOOLS, &["nbdinfo", "qemu-io"]].concat()) {
        return;
    }
    let home = Home::new();
    let (hard, on_a_file) = (WithoutHoles::new(&home), home.path("d2"));
    std::fs::File::create(&on_a_file).unwrap().set_len(20 << 20).unwrap();
    let unmaps = Loop(attach(&on_a_file, &Way::default()));
    let members = [("d0", true), (&*unmaps.0, true), ("ram/d", false), (&*hard.device, false)];
    for (at, (member, trims)) in members.into_iter().enumerate() {
        home.ok(&format!(
            "array create {at}.toml --level 5 --size 20MiB --members {at}a {at}b {member} --erase"
        ));
        let (server, _) = home.start(&format!("array serve {at}.toml {NBD_DOOR}"));
        let uri = uri(&home);
        let said: serde_json::Value = serde_json::from_str(&sh(&format!("nbdinfo --json '{uri}'"))).unwrap();
        for able in ["can_trim", "can_fast_zero"] {
            assert_eq!(said["exports"][0][able], trims, "{able} with {member}: {said}");
        }
        let zeroed = sh(&format!(
            "qemu-io -f raw '{uri}' -c 'write -P 7 0 1M' -c 'write -z 64k 256k' -c 'read -P 0 64k 256k' \
             -c 'read -P 7 320k 64k'"
        ));
        assert!(!zeroed.contains("failed"), "{zeroed}");
        assert_eq!(server.interrupt().0, 0);
        home.ok(&format!("array scrub {at}.toml"));
        let (mounted, _) = home.start(&format!("array mount {at}.toml mnt --format"));
        std::fs::write(home.path("mnt/kept"), "kept").unwrap();
        try_sh(&format!("fstrim {}", home.path("mnt").display()));
        assert_eq!(mounted.interrupt().0, 0);
        fsck_is_content(&home, &format!("array serve {at}.toml"));
    }
}
