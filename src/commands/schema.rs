//! `dcctl schema`: the JSON Schema of the event lines.

use crate::commands::print;

/// Prints it.
pub(crate) fn print_schema() -> u8 {
    let text = serde_json::to_string_pretty(&crate::event::schema()).expect("a schema is plain JSON");
    print(&format!("{text}\n"))
}
