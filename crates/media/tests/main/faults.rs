use crate::support::*;
use vellum_base::{BlockAddr, BlockState, Flash, FlashError};
use vellum_media::nand::{Fault, NandParams};

#[test]
fn the_nth_program_fails() {
    everywhere(|nand| {
        nand.inner().arm(3, Fault::ProgramFails);
        program(nand, 0, 0, 0).unwrap();
        program(nand, 1, 0, 1).unwrap();
        let error = program(nand, 0, 1, 2).unwrap_err();
        assert!(matches!(error, FlashError::ProgramFailed(at) if at == BlockAddr(0).page(1)));
        assert_eq!(nand.report(BlockAddr(0)).state, BlockState::Bad);
        assert!(holds(nand, 0, 0, 0), "what was programmed may be read");
        assert!(matches!(program(nand, 0, 2, 2), Err(FlashError::ProgramFailed(_))));
        program(nand, 1, 1, 1).unwrap();
        let c = nand.counters();
        assert_eq!((c.pages_programmed, c.program_failures), (5, 2));
    });
}

#[test]
fn the_nth_erase_fails() {
    everywhere(|nand| {
        program(nand, 0, 0, 0).unwrap();
        nand.inner().arm(2, Fault::EraseFails);
        erase(nand, 1).unwrap();
        assert!(matches!(erase(nand, 0), Err(FlashError::EraseFailed(BlockAddr(0)))));
        assert_eq!(nand.report(BlockAddr(0)).state, BlockState::Bad);
        assert!(matches!(read(nand, BlockAddr(0).page(0)), Err(FlashError::Uncorrectable(_))));
        erase(nand, 1).unwrap();
        assert_eq!((nand.counters().blocks_erased, nand.counters().erase_failures), (2, 1));
    });
}

#[test]
fn a_lost_program_looks_fine_and_reads_as_erased() {
    everywhere(|nand| {
        nand.inner().arm(1, Fault::ProgramLost);
        program(nand, 0, 0, 0).unwrap();
        program(nand, 0, 1, 1).unwrap();
        assert_eq!(nand.report(BlockAddr(0)).pages_written, 2);
        let (data, oob) = read(nand, BlockAddr(0).page(0)).unwrap();
        assert!(data.iter().chain(&oob[..8]).all(|b| *b == 0xFF));
        assert!(holds(nand, 0, 1, 1));
    });
}

#[test]
fn a_misdirected_program_lands_on_another_page() {
    everywhere(|nand| {
        program(nand, 2, 0, 5).unwrap();
        program(nand, 2, 1, 6).unwrap();
        nand.inner().arm(1, Fault::ProgramMisdirected { to: BlockAddr(2).page(0) });
        program(nand, 1, 0, 7).unwrap();
        assert!(holds(nand, 2, 0, 7) && holds(nand, 2, 1, 6));
        assert!(!holds(nand, 1, 0, 7));
        assert_eq!(nand.report(BlockAddr(1)).pages_written, 1);
    });
}

#[test]
fn rot_is_seen_or_not() {
    everywhere(|nand| {
        program(nand, 0, 0, 4).unwrap();
        program(nand, 0, 1, 4).unwrap();
        nand.inner().flip_bit(BlockAddr(0).page(0), 8 * 4097 + 3).unwrap();
        let (data, oob) = read(nand, BlockAddr(0).page(0)).unwrap();
        let mut want = content(4);
        if nand.coding().is_none() {
            want[4097] ^= 8;
        }
        assert_eq!(nand.counters().bits_corrected, u64::from(nand.coding().is_some()));
        assert!(data == want && oob[..8] == 4u64.to_le_bytes());
        nand.inner().spoil(BlockAddr(0).page(1)).unwrap();
        assert!(matches!(read(nand, BlockAddr(0).page(1)), Err(FlashError::Uncorrectable(_))));
        erase(nand, 0).unwrap();
        program(nand, 0, 0, 4).unwrap();
        assert!(holds(nand, 0, 0, 4), "an erase heals");
    });
}

#[test]
fn after_a_host_error_nothing_is_written_until_it_is_opened_again() {
    everywhere(|nand| {
        program(nand, 0, 0, 0).unwrap();
        nand.inner().arm(1, Fault::Host { errno: 28 });
        assert!(matches!(program(nand, 0, 1, 1), Err(FlashError::Full(_))));
        let error = program(nand, 0, 1, 1).unwrap_err();
        assert!(error.to_string().contains("open it again"), "{error}");
        assert!(nand.sync().is_err() && erase(nand, 0).is_err());
        assert!(holds(nand, 0, 0, 0), "reads go on");
    });
    let home = InFile::new();
    let nand = home.create(SMALL);
    nand.inner().arm(1, Fault::Host { errno: 5 });
    program(&nand, 0, 0, 0).unwrap_err();
    nand.inner().power_on();
    assert!(program(&nand, 0, 0, 0).is_err(), "only opening again helps an image");
    drop(nand);
    program(&home.open(), 0, 0, 0).unwrap();
    let nand = ram(NandParams::default());
    nand.inner().arm(1, Fault::Host { errno: 5 });
    assert!(matches!(read(&nand, BlockAddr(0).page(0)), Err(FlashError::Io(_))));
    program(&nand, 0, 0, 0).unwrap();
    nand.inner().arm(1, Fault::Host { errno: 5 });
    assert!(matches!(nand.sync(), Err(FlashError::Io(_))));
    assert!(program(&nand, 0, 1, 0).is_err());
    nand.inner().power_on();
    program(&nand, 0, 1, 0).unwrap();
}

#[test]
fn a_fork_goes_its_own_way() {
    let nand = ram(NandParams { nvram_bytes: 8, ..NandParams::default() });
    program(&nand, 0, 0, 2).unwrap();
    nand.nvram().unwrap().write(0, &[1]).unwrap();
    let fork = fork(&nand);
    erase(&nand, 0).unwrap();
    nand.nvram().unwrap().write(0, &[2]).unwrap();
    program(&fork, 0, 1, 3).unwrap();
    assert!(holds(&fork, 0, 0, 2) && holds(&fork, 0, 1, 3));
    assert!(is_erased(&nand, 0, 0));
    let mut byte = [0];
    fork.nvram().unwrap().read(0, &mut byte).unwrap();
    assert_eq!(byte, [1]);
    assert!(InFile::new().create(SMALL).inner().fork().is_none());
}
