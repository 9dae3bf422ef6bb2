//! `dcctl schema`: the JSON Schema of the event lines.

use crate::commands::print;

/// Made from the types by `make docs`; a test compares the two. The program need not carry what makes it.
const SCHEMA: &str = include_str!("../../docs/reference/events.schema.json");

/// Prints it.
pub(crate) fn print_schema() -> u8 {
    print(SCHEMA)
}
