//! Names, lines and values from elsewhere, made safe to print on a terminal.

/// Escapes control characters in foreign text, which a terminal would execute.
pub fn harmless(text: &str) -> String {
    let is_order = |c: char| c.is_control() && !['\n', '\t'].contains(&c);
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if is_order(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
        out
    })
}

/// The same for JSON, in which DEL and U+0080 to U+009F are not escaped. They occur only in its strings.
pub fn harmless_json(json: String) -> String {
    // First bytes of their UTF-8.
    if !json.bytes().any(|byte| [0x7F, 0xC2].contains(&byte)) {
        return json;
    }
    let is_order = |c: &char| ('\u{7f}'..='\u{9f}').contains(c);
    json.chars().fold(String::with_capacity(json.len()), |mut out, c| {
        if is_order(&c) {
            out.push_str(&format!("\\u{:04x}", c as u32));
        } else {
            out.push(c);
        }
        out
    })
}
