//! Units that lie among others are read with them: a page at a time, not each alone.

use super::{INTENT, Unit, contents_of, flash, open};
use std::sync::Arc;
use vellum_base::{Env, Flash, IoClass, RealEnv};
use vellum_kv::media::{Schedule, Stored, Tables};
use vellum_media::nand::NandParams;

const PAGE_BYTES: u32 = 16384;
/// The least that tables share.
const UNIT: usize = 64;

#[test]
fn a_page_of_which_much_is_wanted_is_read_once() {
    for schedule in [None, Some(Schedule::Priority)] {
        let (env, flash): (Arc<dyn Env>, _) =
            (RealEnv::new(), flash(1, NandParams::default(), 12, PAGE_BYTES));
        let media = open(&flash, &env, schedule).unwrap();
        let units = 4 * PAGE_BYTES / UNIT as u32;
        let mut writer = media.create_table(1, INTENT).unwrap();
        writer.append(&contents_of(UNIT, (0..units).map(|unit| (1, unit)))).unwrap();
        writer.finish(0).unwrap();
        // Every other is another now: what is left of four pages, and two pages of new units.
        let mut writer = media.create_table(2, INTENT).unwrap();
        for unit in (0..units).step_by(2) {
            let from = Stored { table: 1, offset: u64::from(unit) * UNIT as u64 };
            let stored = contents_of(UNIT, [(1, unit)]);
            assert_eq!(writer.append_stored(&stored, from).unwrap(), UNIT as u64);
            writer.append(&contents_of(UNIT, [(2, unit / 2)])).unwrap();
        }
        writer.finish(0).unwrap();
        media.erase_table(1).unwrap();
        let wanted: Vec<Unit> =
            (0..units).map(|unit| if unit % 2 == 0 { (1, unit) } else { (2, unit / 2) }).collect();
        let expected = contents_of(UNIT, wanted);
        let (reader, mut read) = (media.open_table(2).unwrap(), vec![0; expected.len()]);
        let before = flash.counters().pages_read;
        reader.read(0, &mut read, IoClass::Foreground).unwrap();
        assert_eq!((flash.counters().pages_read - before, read == expected), (6, true));
        let asked = reader.ask(0, expected.len(), IoClass::Background).unwrap().wait(&*env).unwrap();
        assert_eq!((flash.counters().pages_read - before, asked == expected), (12, true));
    }
}
