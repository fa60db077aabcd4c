//! Others' names, lines and values, as a terminal may be shown them.

/// What of others' names and lines would be an order to a terminal is shown as what it is.
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

/// The same of JSON, which leaves DEL and what is from U+0080 to U+009F as it is. Such are in its strings alone.
pub fn harmless_json(json: String) -> String {
    // What begins their UTF-8.
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
