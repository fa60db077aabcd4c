//! Every command has help.

use crate::support::Home;

/// The subcommands of `path`, from its help.
fn commands(home: &Home, path: &str) -> Vec<String> {
    let help = home.ok(&format!("{path} --help"));
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let names = list.lines().take_while(|l| !l.trim().is_empty());
    // Continued descriptions are indented further than names.
    let names = names.filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    let names = names.filter_map(|l| l.split_whitespace().next()).filter(|n| *n != "help");
    names.map(|name| format!("{path} {name}").trim().to_string()).collect()
}

#[test]
fn every_command_has_one_line_an_example_and_exit_codes() {
    let home = Home::new();
    let mut left = vec![String::new()];
    let mut seen = 0;
    while let Some(path) = left.pop() {
        let help = home.ok(&format!("{path} --help"));
        let what = help.lines().next().unwrap_or("");
        assert!(what.len() > 10, "{path}: no line says what it does: {help}");
        assert!(help.contains("\nExample:\n  "), "{path}: no example: {help}");
        assert!(help.contains("vellum "), "{path}: {help}");
        assert!(help.contains("\nExit codes: 0 "), "{path}: no exit codes: {help}");
        assert!(help.contains("--json"), "{path}: no JSON: {help}");
        left.extend(commands(&home, &path));
        seen += 1;
    }
    assert!(seen >= 17, "only {seen} commands were found");
}

/// Whether a line breaks before a word that would have fitted: it was wrapped in the source, and again when shown.
fn is_wrapped_twice(line: &str, next: &str) -> bool {
    let (width, word) = (line.chars().count(), next.split_whitespace().next().unwrap_or(""));
    let ends = line.ends_with(['.', ':', ';']) || line.is_empty() || next.starts_with(' ');
    !ends && width > 0 && width + 1 + word.chars().count() < 85
}

#[test]
fn help_is_wrapped_once() {
    let home = Home::new();
    let mut left = vec![String::new()];
    while let Some(path) = left.pop() {
        let help = home.ok(&format!("{path} --help"));
        let lines: Vec<&str> = help.lines().collect();
        // Paragraphs begin at the margin; lists and examples do not.
        let text = lines.windows(2).filter(|pair| !pair[0].starts_with(' ') && !pair[1].is_empty());
        for pair in text.filter(|pair| !pair[0].starts_with("Usage")) {
            assert!(!is_wrapped_twice(pair[0], pair[1]), "{path}: {}\n{}", pair[0], pair[1]);
        }
        left.extend(commands(&home, &path));
    }
}

#[test]
fn usage_errors_end_with_2() {
    let home = Home::new();
    for line in [
        "",
        "nonsense",
        "disk",
        "disk create",
        "disk create d --size",
        "disk create d --size big",
        "disk serve d",
    ] {
        assert_eq!(home.run(line).code, 2, "{line}");
    }
    for line in ["check d", "stat d"] {
        let said = home.run(line);
        let command = line.split(' ').next().unwrap();
        assert!(said.code == 2 && said.err.contains(&format!("'disk {command}'")), "{}", said.err);
    }
    assert!(home.ok("--version").starts_with("vellum "));
}
