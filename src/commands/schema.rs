//! `dcctl schema`: the JSON Schemas of the event lines and of bundle.yaml.

use crate::cli::SchemaOf;
use crate::commands::print;

/// Both are made from the types by `make docs`; a test compares the two. The program need not carry what makes them.
const EVENTS: &str = include_str!("../../docs/reference/events.schema.json");
const BUNDLE: &str = include_str!("../../docs/reference/bundle.schema.json");

/// Prints one.
pub(crate) fn print_schema(of: SchemaOf) -> u8 {
    print(match of {
        SchemaOf::Events => EVENTS,
        SchemaOf::Bundle => BUNDLE,
    })
}
