//! `ses` from the command line, on dumps of drives whose scramblers are implemented here, bit by bit.

use crate::nbd::Client;
use crate::support::Home;
use std::fmt::Write;
use vellum::base::{BlockDevice, Flash, IoClass, Lba};

/// A drive with a 32-bit register in Galois form, most significant bit of a byte first.
pub struct Drive {
    /// Keystreams depend on the page modulo this; None: on the sector.
    pub period: Option<u64>,
    /// One bit in this many is wrong when read raw.
    pub wrong_one_in: u64,
}

/// A pattern as named in a manifest, and its contents.
pub type Written<'a> = (&'a str, &'a dyn Fn(u64) -> Vec<u8>);

impl Drive {
    fn stored(&self, lba: u64, page: u64, data: &[u8]) -> Vec<u8> {
        let address = self.period.map_or(lba, |period| page % period);
        let mut register = 0x1F0E_2D3Cu32 ^ (address as u32) << 5 ^ (address as u32).rotate_left(17);
        let mut chance = lba * 31 + page * 1_000_003 + u64::from(data[0]) + 1;
        let mut next = || {
            let out = register & 1;
            register = (register >> 1) ^ (out * 0xA300_0000);
            chance = chance.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            let wrong = self.wrong_one_in > 0 && (chance >> 33).is_multiple_of(self.wrong_one_in);
            out as u8 ^ u8::from(wrong)
        };
        data.iter().map(|byte| byte ^ (0..8).fold(0, |byte, _| byte << 1 | next())).collect()
    }

    /// Writes sectors and makes a raw dump of them; they are on pages in reverse order.
    pub fn dump(&self, home: &Home, name: &str, lbas: &[u64], (pattern, content): Written<'_>) {
        let mut bytes = Vec::new();
        let mut manifest = format!(
            "format = 'vellum-ses-dump'\nversion = 1\nfile = '{name}.bin'\npiece_bytes = 4096\npieces_per_block = 256\n"
        );
        for (page, lba) in (0..).map(|i| 100_000 - i).zip(lbas) {
            bytes.extend(self.stored(*lba, page, &content(*lba)));
            write!(manifest, "[[pieces]]\nlba = {lba}\npage = {page}\npattern = '{pattern}'\n").unwrap();
        }
        std::fs::write(home.path(&format!("{name}.bin")), bytes).unwrap();
        std::fs::write(home.path(&format!("{name}.toml")), manifest).unwrap();
    }
}

const ZERO: Written<'_> = ("zero", &|_| vec![0; 4096]);
const ONES: Written<'_> = ("ones", &|_| vec![0xFF; 4096]);
pub const LBA: Written<'_> = ("lba", &|lba| (lba | u64::from(b'L') << 56).to_le_bytes().repeat(512));

/// Enough sectors of 2^20.
pub fn spread() -> Vec<u64> {
    let sums = (1..13).map(|i| (1 << 20) - 1 - i * 87_211);
    [0].into_iter().chain((0..20).map(|bit| 1 << bit)).chain(sums).collect()
}

#[test]
fn a_noisy_drive_is_learned_and_the_file_foretells_it() {
    let home = Home::new();
    let drive = Drive { period: None, wrong_one_in: 500 };
    drive.dump(&home, "zeros", &spread(), ZERO);
    drive.dump(&home, "lbas", &spread(), LBA);
    drive.dump(&home, "fresh", &(5000..5040).collect::<Vec<_>>(), LBA);
    let said = home.json("ses learn zeros.toml lbas.toml --verify fresh.toml --to s.toml");
    assert_eq!((&said["address"], &said["degree"], &said["fresh"]), (&"lba".into(), &32.into(), &40.into()));
    assert_eq!(said["polynomial"], "x^32 + x^7 + x^6 + x^2 + 1");
    assert_eq!((&said["known_below"], &said["patterns"]), (&(1 << 20).into(), &2.into()));
    let rate = said["error_rate"].as_f64().unwrap();
    assert!((0.0018..0.0022).contains(&rate), "{rate}");

    let file = vellum::ses::ScramblerFile::read(&home.path("s.toml")).unwrap();
    let quiet = Drive { wrong_one_in: 0, ..drive };
    for lba in [0, 77, 999_999] {
        let data = LBA.1(lba);
        let mut stored = data.clone();
        file.scrambler.xor_into(lba, &mut stored).unwrap();
        assert!(stored == quiet.stored(lba, 0, &data), "sector {lba}");
    }
    let text = home.ok("ses learn zeros.toml lbas.toml");
    for part in ["32 bits", "sector address", "below 1048576, 4.00 GiB", "all foretold"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    home.run("ses learn zeros.toml lbas.toml --to s.toml").failed(2, "exists already");
    home.ok("ses learn zeros.toml lbas.toml --to s.toml --force");
}

#[test]
fn a_drive_that_seeds_by_page_is_told_apart() {
    let home = Home::new();
    let drive = Drive { period: Some(64), wrong_one_in: 2000 };
    let lbas: Vec<u64> = (0..200).map(|i| i * 7919 % 4096).collect();
    drive.dump(&home, "d", &lbas, LBA);
    let said = home.json("ses learn d.toml");
    assert_eq!((&said["address"], &said["period"]), (&"page".into(), &64.into()));
    assert_eq!(home.json("ses learn d.toml --by page-in-block")["period"], 64);
    home.run("ses learn d.toml --by lba").failed(4, "of address");
}

#[test]
fn what_does_not_fit_is_refused_with_its_reason() {
    let home = Home::new();
    let drive = Drive { period: None, wrong_one_in: 0 };
    let noisy = Drive { wrong_one_in: 40, ..drive };
    noisy.dump(&home, "noisy", &spread(), ZERO);
    home.run("ses learn noisy.toml --by lba").failed(4, "of the bits are wrong, more than 1.00%");
    assert_eq!(home.json("ses learn noisy.toml --max-error-rate 5%")["degree"], 32);

    let always = Drive { period: Some(1), ..drive };
    always.dump(&home, "always", &spread(), ZERO);
    home.run("ses learn always.toml").failed(4, "nothing to undo");

    drive.dump(&home, "few", &[0, 1, 2, 4, 8], ZERO);
    home.run("ses learn few.toml --by lba").failed(4, "too few samples");
    let text = |lba: u64| format!("This is sector {} of a book. ", lba * lba % 9973).repeat(200).into_bytes();
    drive.dump(&home, "lied", &spread(), ("ones", &|lba| text(lba)[..4096].to_vec()));
    home.run("ses learn lied.toml").failed(4, "no part of any piece is made by a shift register");
    // Which sums are dumped matters: these never have bit 8, so it remains unproven.
    let sums = (1..13).map(|i| (1 << 20) - 1 - i * 86_000);
    let blind: Vec<u64> = [0].into_iter().chain((0..20).map(|bit| 1 << bit)).chain(sums).collect();
    drive.dump(&home, "blind", &blind, ZERO);
    assert_eq!(home.json("ses learn blind.toml --fresh-min 0")["known_below"], 256);

    // All are declared to be zeros, but one page was not.
    drive.dump(&home, "zeros", &spread(), ZERO);
    let mut bytes = std::fs::read(home.path("zeros.bin")).unwrap();
    bytes[4 * 4096..5 * 4096].iter_mut().for_each(|byte| *byte ^= 0xFF);
    std::fs::write(home.path("zeros.bin"), &bytes).unwrap();
    home.run("ses learn zeros.toml --by lba").failed(4, "the piece of address 8 does not fit");

    let noise: Vec<u8> =
        (0..bytes.len() as u64).map(|i| ((i.wrapping_mul(i) >> 7) ^ ((i * 197) >> 3)) as u8).collect();
    std::fs::write(home.path("zeros.bin"), noise).unwrap();
    home.run("ses learn zeros.toml").failed(4, "no part of any piece is made by a shift register");
    drive.dump(&home, "ones", &spread(), ONES);
    assert_eq!(home.json("ses learn ones.toml")["bits_wrong"], 0);
}

#[test]
fn manifests_may_hold_anything() {
    let home = Home::new();
    Drive { period: None, wrong_one_in: 0 }.dump(&home, "d", &spread(), ZERO);
    let good = std::fs::read_to_string(home.path("d.toml")).unwrap();
    let huge = "[[pieces]]\nlba = 9\npattern = 'zero'\noffset = 9223372036854775807\n[[pieces]]\n";
    let cases = [
        ("version = 1", "version = 2", "not vellum-ses-dump 1"),
        ("version = 1", "version = 1\nflavour = 1", "flavour"),
        ("piece_bytes = 4096", "piece_bytes = 100", "piece_bytes is 100"),
        ("pieces_per_block = 256", "pieces_per_block = 0", "pieces_per_block is 0"),
        ("file = 'd.bin'", "file = '/none'", "open /none"),
        ("pattern = 'zero'", "pattern = 'magic'", "no pattern 'magic'"),
        ("lba = 0\n", "lba = 0\ncount = 9000000000000000000\n", "MiB of pieces"),
        ("lba = 0\n", "lba = 0\ncount = 99\n", "d.bin ends"),
        ("lba = 0\npage = 100000\n", "", "neither lba nor page"),
        ("lba = 0\n", "lba = 0\noffset = 9223372036854775807\n", "d.bin"),
        ("[[pieces]]\n", huge, "d.bin"),
        ("lba = 0\n", "lba = -1\n", "-1"),
        ("lba = 0\n", "lba = 0\ncount = 0\n", "count is 0"),
    ];
    for (from, to, said) in cases {
        std::fs::write(home.path("bad.toml"), good.replacen(from, to, 1)).unwrap();
        let run = home.run("ses learn bad.toml");
        assert!(matches!(run.code, 2..=4), "{to}: {}", run.err);
        run.failed(run.code, said);
    }
    std::fs::write(home.path("bad.toml"), [0xFF; 100]).unwrap();
    home.run("ses learn bad.toml").failed(4, "not a text file");
    home.run("ses learn none.toml").failed(3, "open none.toml");
    let head = good.split("[[pieces]]").next().unwrap();
    std::fs::write(home.path("bad.toml"), format!("{head}pieces = []\n")).unwrap();
    home.run("ses learn bad.toml").failed(2, "have no pieces");
}

/// Writes, dumps and learns. Returns the output of `ses learn`.
fn attack(home: &Home, image: &str) -> serde_json::Value {
    let written = home.json(&format!("ses write {image} --lba spread --pattern lba"));
    let dumped = home.json(&format!("ses dump {image} --lba spread --pattern lba --to {image}.toml"));
    assert_eq!((&written["sectors"], &dumped["not_on_flash"]), (&dumped["sectors"], &0.into()));
    home.json(&format!("ses learn {image}.toml --to {image}.learned"))
}

#[test]
fn a_vellum_disk_is_learned_and_then_holds_plain_data() {
    let home = Home::new();
    home.ok("disk create d --size 64MiB --scrambler lba");
    let learned = attack(&home, "d");
    assert_eq!((&learned["address"], &learned["degree"]), (&"lba".into(), &64.into()));
    assert_eq!(learned["known_below"], 1 << 14);

    let serve = "disk serve d --nbd unix:s --ses host --scrambler-file d.learned";
    let (server, _) = home.start(serve);
    let mut client = Client::connect(&home.path("s"));
    let text: Vec<u8> = (0..400_000u32).map(|i| (i.wrapping_mul(i) >> 11) as u8).collect();
    let text = &text[..64 * 4096];
    client.write(4096 * 5000, text).unwrap();
    client.flush().unwrap();
    drop(client);
    server.kill();

    // The cells hold the text itself; a device that was not told about the scrambler reads the same.
    let stack = vellum::Stack::open(&home.path("d"), vellum::OpenMode::default()).unwrap();
    for (i, sector) in text.chunks(4096).enumerate() {
        let mut data = [0; 4096];
        let lba = Lba(5000 + i as u64);
        stack.device().read(lba, &mut data).unwrap();
        assert!(data == *sector, "{lba}");
        let slot = stack.disk().slot_of(lba).unwrap().unwrap();
        let (page, index) = stack.flash().geometry().page_of_slot(slot);
        let raw = stack.flash().inner();
        raw.read(IoClass::Background, page, index * 4096, &mut data, &mut []).unwrap();
        assert!(data == *sector, "{lba} is plain");
    }
    stack.close().unwrap();
    let (memory, _) =
        home.start(&serve.replace("serve d --nbd unix:s", "serve --ram 64MiB --scrambler lba --nbd unix:m"));
    assert_eq!(memory.interrupt().0, 0);
    let (server, _) = home.start(serve);
    let mut client = Client::connect(&home.path("s"));
    let mut back = vec![0; text.len()];
    client.read(4096 * 5000, &mut back).unwrap();
    assert!(back == text);
    drop(client);
    assert_eq!(server.interrupt().0, 0);
}

#[test]
fn host_mode_is_refused_where_it_cannot_work() {
    let home = Home::new();
    for (image, scrambler) in [("d", "lba"), ("other", "lba"), ("page", "page:64"), ("off", "off")] {
        home.ok(&format!("disk create {image} --size 64MiB --scrambler {scrambler}"));
    }
    attack(&home, "d");
    let serve = |image: &str, more: &str| home.run(&format!("disk serve {image} --nbd unix:s {more}"));
    serve("d", "--ses host").failed(2, "needs to know");
    serve("d", "--scrambler-file d.learned").failed(2, "say --ses host");
    serve("d", "--ses host --scrambler-file d.toml").failed(4, "d.toml");
    serve("page", "--ses host --scrambler-file d.learned").failed(3, "physical page");
    serve("off", "--ses host --scrambler-file d.learned").failed(3, "nothing for a host to undo");
    home.ok("disk create large --size 128MiB --scrambler lba");
    let large = serve("large", "--ses host --scrambler-file d.learned");
    assert!(large.err.contains("vellum ses write large --lba spread"), "{}", large.err);
    large.failed(2, "seed of address 16384");
    home.ok("disk create tiny --size 64KiB --scrambler lba");
    home.ok("ses write tiny --lba spread");
    Drive { period: None, wrong_one_in: 0 }.dump(&home, "foreign", &spread(), LBA);
    home.ok("ses learn foreign.toml --to foreign.learned");
    serve("d", "--ses host --scrambler-file foreign.learned").failed(2, "another keystream");

    home.run("ses write d --lba 4").failed(2, "sector 4 holds data");
    home.ok("ses write d --lba 4 --pattern ones --overwrite");
    home.run("ses write d --lba 20000").failed(2, "no 20000");
    home.run("ses dump d --lba 0-2,4 --to e.toml").failed(2, "sector 4 does not hold pattern lba");
    home.run("ses dump d --lba 4 --to d.toml").failed(2, "exists already");
    home.run("ses dump d --lba 4 --pattern file:x --to e.toml").failed(2, "no pattern to dump");
    home.ok("ses write d --lba 9,10 --pattern zero --overwrite");
    home.run("ses dump d --lba 9,10 --pattern zero --to e.toml").failed(2, "none of 2 sectors");
    assert!(!home.path("e.toml").exists());
    // Copies have the keystream of the first one.
    home.ok("disk create copies --size 64MiB --scrambler lba --dedup ecc");
    home.ok("ses write copies --lba spread --pattern ones");
    home.run("ses dump copies --lba spread --pattern ones --to e.toml")
        .failed(2, "a slot of flash to itself");
    home.ok("ses write copies --lba 4-30 --pattern lba --overwrite");
    let dumped = home.json("ses dump copies --lba 4-30 --to e.toml");
    assert_eq!((&dumped["sectors"], &dumped["not_on_flash"]), (&27.into(), &0.into()));
    home.ok("ses write page --lba 0-1999");
    home.ok("ses dump page --lba 0-1999 --to order.toml");
    home.run("ses learn order.toml").failed(2, "may go by lba or by page");
    assert_eq!(home.json("ses learn order.toml --by page")["address"], "page");
    let pieces = "--lba 2005-2100,2300-2333,5000-5777,6789,7000-7900";
    home.ok(&format!("ses write page {pieces}"));
    home.ok(&format!("ses dump page {pieces} --to page.toml"));
    let by_page = home.json("ses learn page.toml --to page.learned");
    assert_eq!((&by_page["address"], &by_page["period"]), (&"page".into(), &32.into()));
    serve("d", "--ses host --scrambler-file page.learned").failed(3, "by page, not sectors by lba");
    home.ok("ses write off --lba spread");
    home.ok("ses dump off --lba spread --to off.toml");
    home.run("ses learn off.toml").failed(4, "nothing is scrambled");
}
