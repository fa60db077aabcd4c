//! Experiments: distinct names, determinism, and the results on which Vellum is built.

use vellum_lab::experiment::{Outcome, Scale, Setting, all, find};
use vellum_lab::report::Page;

fn run(name: &str, seed: u64) -> Outcome {
    let experiment = find(name).unwrap();
    (experiment.run)(&Setting { scale: Scale::Small, seed, progress: &() }).unwrap()
}

#[test]
fn names_are_unique_and_a_wrong_one_is_answered_with_the_list() {
    let mut names: Vec<_> = all().iter().map(|e| e.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all().len());
    for figure in ["table1", "fig2", "fig3", "fig5", "fig6", "fig7", "fig8", "metadata", "vs-vellum"] {
        find(&format!("woj-{figure}")).unwrap();
    }
    for figure in ["fig1", "fig2", "fig4", "fig5", "table3", "table4", "compression"] {
        find(&format!("ses-{figure}")).unwrap();
    }
    for figure in ["fig6", "fig7", "fig8"] {
        find(&format!("flashkv-{figure}")).unwrap();
    }
    for figure in 4..=11 {
        find(&format!("kdd-fig{figure}")).unwrap();
    }
    for figure in ["fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "caps", "vs-vellum", "separation"]
    {
        find(&format!("freewrite-{figure}")).unwrap();
    }
    let error = find("woj-fig9").err().unwrap().to_string();
    assert!(error.contains("woj-fig2"), "{error}");
}

#[test]
fn vellum_beside_the_paper() {
    let outcome = run("woj-vs-vellum", 1);
    let check = |start: &str| outcome.checks.iter().find(|c| c.claim.starts_with(start)).unwrap();
    for ours in ["Home writes", "Vellum removes", "Vellum's journal mode corrupts nothing", "Dedup costs"] {
        assert!(check(ours).holds, "{:?}", check(ours));
    }
    let papers = check("WOJ's correctness");
    assert!(!papers.holds && !papers.ours.contains("and 0 during"), "{papers:?}");
    let table = &outcome.tables[0];
    assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    let mut page = Page::new("woj-vs-vellum");
    page.outcome(find("woj-vs-vellum").unwrap(), &outcome, "vellum lab run woj-vs-vellum");
    assert!(page.html().matches("<svg").count() == outcome.charts.len() && !outcome.charts.is_empty());
}

#[test]
fn a_store_that_owns_its_flash_recycles_nothing_valid() {
    let chapter = vellum_lab::experiment::key_value_chapter();
    let setting = |seed| Setting { scale: Scale::Small, seed, progress: &() };
    let outcome = (chapter.run)(&setting(1)).unwrap();
    let rows = &outcome.tables[0].rows;
    let cell = |row: usize, column: usize| rows[row][column].parse::<f64>().unwrap();
    assert_eq!((rows[0][0].as_str(), rows[2][0].as_str()), ("LevelDB-ext4", "FlashKV"));
    assert!(cell(2, 3) == 100.0 && cell(0, 3) < 95.0, "GC efficiency: {rows:?}");
    assert!(cell(2, 1) > cell(0, 1), "requests a second: {rows:?}");
    assert_eq!(outcome.tables[1].rows, (chapter.run)(&setting(1)).unwrap().tables[1].rows, "the same seed");
}

#[test]
fn a_store_that_remaps_programs_less_flash() {
    let chapter = vellum_lab::experiment::reuse_chapter();
    let outcome = (chapter.run)(&Setting { scale: Scale::Small, seed: 1, progress: &() }).unwrap();
    let less: Vec<f64> = outcome.tables[0].rows.iter().map(|row| row[3].parse().unwrap()).collect();
    assert!(less[0] > 0.0 && less[1] > 10.0 && less[2] > 15.0, "{less:?}");
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let json = |seed| serde_json::to_string(&run("woj-fig5", seed)).unwrap();
    let first = json(3);
    assert_eq!(first, json(3));
    assert_ne!(first, json(4));
}

#[test]
fn the_journal_pool_fits_the_papers_memory() {
    let outcome = run("woj-metadata", 1);
    assert!(outcome.checks.iter().all(|c| c.holds), "{:?}", outcome.checks);
}

#[test]
fn surveys_of_real_files_give_the_papers_figures_of_redundancy() {
    for name in ["ses-fig1", "ses-table3"] {
        let outcome = run(name, 1);
        let table = &outcome.tables[0];
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
        let share = |row: &Vec<String>, column: usize| row[column].parse::<f64>().unwrap();
        let headers = table.rows.iter().find(|row| row[0] == "headers").unwrap();
        let pages =
            table.columns.iter().position(|c| c.starts_with("8 KiB, % dup") || c.starts_with("duplicate"));
        assert!((30.0..45.0).contains(&share(headers, pages.unwrap())), "{headers:?}");
        assert!(outcome.checks.iter().filter(|c| !c.holds).count() <= 1, "{:?}", outcome.checks);
    }
}

#[test]
fn kdd_has_the_paper_s_shape() {
    for (name, checks) in [("kdd-fig4", 2), ("kdd-fig11", 3), ("kdd-engine", 3), ("kdd-nvram", 2)] {
        let outcome = run(name, 1);
        assert_eq!(outcome.checks.len(), checks);
        assert!(outcome.checks.iter().all(|check| check.holds), "{:?}", outcome.checks);
        assert!(outcome.tables.iter().all(|t| t.rows.iter().all(|row| row.len() == t.columns.len())));
    }
}
