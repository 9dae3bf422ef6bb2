//! Resources of OpenTofu and objects of Kubernetes as lines of the log, and what is in flight among them.

use std::time::Duration;

use crate::clock::human;
use crate::event::facts::cluster::object;
use crate::event::text::{count, span};
use crate::event::{ObjectApplied, ObjectChange};
use crate::report::human::row::{Row, Style, columns};

/// Where the content of a step begins.
pub(super) const CONTENT: usize = 5;

/// Where the words after the names of objects begin.
const OBJECT_WORDS: usize = CONTENT + 2 + 42;

/// How wide the column of addresses may become.
const WIDEST_ADDRESS: usize = 56;

/// What was done to a resource, by OpenTofu's own word for the action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deed {
    sign: &'static str,
    done: &'static str,
    doing: &'static str,
    to: &'static str,
}

impl Deed {
    pub(super) fn of(action: &str) -> Deed {
        let (sign, done, doing, to) = match action {
            "create" => ("+", "created", "creating", "create"),
            "update" => ("~", "changed", "changing", "change"),
            "delete" => ("-", "destroyed", "destroying", "destroy"),
            "replace" => ("±", "replaced", "replacing", "replace"),
            "read" => ("·", "read", "reading", "read"),
            _ => ("·", "done", "working on", "work on"),
        };
        Deed { sign, done, doing, to }
    }

    /// Reading changes nothing, and is not worth a line of its own.
    pub(super) fn changes(self) -> bool {
        self.done != "read"
    }

    /// `creating a.b`.
    pub(super) fn doing(self, address: &str) -> String {
        format!("{} {address}", self.doing)
    }
}

/// The resources of one step.
#[derive(Debug, Default)]
pub(super) struct Resources {
    /// Address and action, as planned.
    planned: Vec<(String, Deed)>,
    /// The plan was told already.
    plan_told: bool,
    /// Completed changes, in the order in which their kinds first came.
    done: Vec<(Deed, u64)>,
    failed: u64,
    cut_off: u64,
    column: usize,
}

/// How a change came to no good end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undone {
    /// The tool says that it failed.
    Failed,
    /// The tool was made to let go of it: whether it was made after all nobody saw.
    CutOff,
}

impl Resources {
    pub(super) fn plan(&mut self, address: &str, action: &str) {
        let deed = Deed::of(action);
        if deed.changes() {
            self.column = self.column.max(columns(address));
            self.planned.push((address.to_owned(), deed));
        }
    }

    /// The plan in one line, once, when the first change begins.
    pub(super) fn begin(&mut self) -> Option<Row> {
        if self.plan_told || self.planned.is_empty() {
            return None;
        }
        self.plan_told = true;
        Some(Style::Dim.row(CONTENT, &format!("plan: {}", self.to_do())))
    }

    /// The plan in full, when the step ends without having begun any of it: a dry run, or a step that only plans.
    pub(super) fn planned_only(&mut self, width: usize) -> Vec<Row> {
        if self.plan_told || self.planned.is_empty() {
            return Vec::new();
        }
        self.plan_told = true;
        let planned = std::mem::take(&mut self.planned);
        let column = self.column(width);
        let rows = planned.iter().flat_map(|(address, deed)| {
            let (mut rows, row) = named((Style::Good, deed.sign), address, column);
            rows.push(row.say(Style::Dim, "to ").say(Style::Dim, deed.to));
            rows
        });
        let rows = rows.collect();
        self.planned = planned;
        rows
    }

    pub(super) fn complete(&mut self, address: &str, action: &str, ms: u64, width: usize) -> Vec<Row> {
        let deed = Deed::of(action);
        if !deed.changes() {
            return Vec::new();
        }
        match self.done.iter_mut().find(|(same, _)| *same == deed) {
            Some((_, number)) => *number += 1,
            None => self.done.push((deed, 1)),
        }
        self.line((Style::Good, deed.sign), address, deed.done, ms, width)
    }

    pub(super) fn fail(&mut self, address: &str, (action, how): (&str, Undone), ms: u64, width: usize) -> Vec<Row> {
        let word = match how {
            Undone::Failed => format!("not {}", Deed::of(action).done),
            Undone::CutOff => "cut off".to_owned(),
        };
        match how {
            Undone::Failed => self.failed += 1,
            Undone::CutOff => self.cut_off += 1,
        }
        self.line((Style::Bad, "✗"), address, &word, ms, width)
    }

    /// `3 created, 1 failed`; nothing when nothing was changed. When the plan was only made, `4 to create`.
    pub(super) fn summary(&self) -> Option<String> {
        let mut parts: Vec<String> = self.done.iter().map(|(deed, number)| format!("{number} {}", deed.done)).collect();
        for (number, word) in [(self.failed, "failed"), (self.cut_off, "cut off")] {
            if number > 0 {
                parts.push(format!("{number} {word}"));
            }
        }
        if parts.is_empty() && !self.planned.is_empty() {
            return Some(self.to_do());
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    fn to_do(&self) -> String {
        let mut counts: Vec<(Deed, u64)> = Vec::new();
        for (_, deed) in &self.planned {
            match counts.iter_mut().find(|(same, _)| same == deed) {
                Some((_, number)) => *number += 1,
                None => counts.push((*deed, 1)),
            }
        }
        let parts: Vec<String> = counts.iter().map(|(deed, number)| format!("{number} to {}", deed.to)).collect();
        parts.join(", ")
    }

    fn line(&mut self, sign: (Style, &str), address: &str, word: &str, ms: u64, width: usize) -> Vec<Row> {
        let style = if sign.0 == Style::Bad { Style::Bad } else { Style::Plain };
        self.column = self.column.max(columns(address));
        let column = self.column(width);
        let (mut rows, row) = named(sign, address, column);
        let row = row.say(style, word);
        rows.push(row.right(Style::Dim, &human(Duration::from_millis(ms)), column + 20));
        rows
    }

    /// Where the words after the addresses begin.
    fn column(&self, width: usize) -> usize {
        CONTENT + 2 + self.column.min(WIDEST_ADDRESS).min(width.saturating_sub(CONTENT + 25)) + 2
    }
}

/// A sign and a name, and a row that goes on at this column. A name that is wider has a line of its own, so that the words
/// stay below one another.
fn named((style, sign): (Style, &str), name: &str, column: usize) -> (Vec<Row>, Row) {
    let row = Row::new().indent(CONTENT).say(style, sign).say(Style::Plain, " ").hang_here();
    let row = row.say(Style::Plain, name);
    let is_wide = CONTENT + 2 + columns(name) + 2 > column;
    let (rows, row) = if is_wide { (vec![row], Row::new()) } else { (Vec::new(), row) };
    (rows, row.pad_to(column))
}

/// Objects that dcctl applied, counted until something else happens.
#[derive(Debug, Default)]
pub(super) struct Objects {
    counts: Vec<(ObjectChange, u64)>,
    dry_run: bool,
}

impl Objects {
    /// Counts an object. In a dry run what would change gets a line of its own; taken-over fields always do.
    pub(super) fn apply(&mut self, applied: &ObjectApplied) -> Vec<Row> {
        self.dry_run = applied.dry_run;
        match self.counts.iter_mut().find(|(change, _)| *change == applied.action) {
            Some((_, number)) => *number += 1,
            None => self.counts.push((applied.action, 1)),
        }
        let mut rows = Vec::new();
        let name = object(&applied.kind, applied.namespace.as_deref(), &applied.name);
        if applied.dry_run && applied.action != ObjectChange::Unchanged {
            let (sign, word) = signed(applied.action);
            let (before, row) = named((Style::Good, sign), &name, OBJECT_WORDS);
            rows.extend(before);
            rows.push(row.say(Style::Dim, word));
        }
        let verb = if applied.dry_run { "would take over" } else { "took over" };
        for former in &applied.taken_over {
            let fields = former.fields.join(", ");
            let text = format!("{verb} {fields} of {name} from {}", former.manager);
            rows.push(Row::new().indent(CONTENT).say(Style::Caution, "! ").hang_here().say(Style::Plain, &text));
        }
        rows
    }

    /// `3 objects created, 1 unchanged`, and starts to count anew.
    pub(super) fn summary(&mut self) -> Option<String> {
        let mut counts = std::mem::take(&mut self.counts);
        counts.sort_by_key(|(change, _)| *change);
        let mut parts = Vec::new();
        for (change, number) in counts {
            let noun = if parts.is_empty() { count(number, "object") } else { number.to_string() };
            let word = match (self.dry_run, change) {
                (false, change) => change.word(),
                (true, ObjectChange::Created) => "to create",
                (true, ObjectChange::Configured) => "to configure",
                (true, ObjectChange::Unchanged) => "to leave as it is",
                (true, ObjectChange::Deleted) => "to delete",
            };
            parts.push(format!("{noun} {word}"));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

fn signed(change: ObjectChange) -> (&'static str, &'static str) {
    match change {
        ObjectChange::Created => ("+", "to create"),
        ObjectChange::Configured => ("~", "to configure"),
        ObjectChange::Unchanged => ("·", "unchanged"),
        ObjectChange::Deleted => ("-", "to delete"),
    }
}

/// Things that have begun and not ended, oldest first.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    items: Vec<Item>,
}

#[derive(Debug)]
struct Item {
    key: String,
    what: String,
    since: Duration,
}

impl InFlight {
    /// Something begins, or is described anew.
    pub(super) fn set(&mut self, key: &str, what: String, now: Duration) {
        match self.items.iter_mut().find(|item| item.key == key) {
            Some(item) => item.what = what,
            None => self.items.push(Item { key: key.to_owned(), what, since: now }),
        }
    }

    /// Something ended: since when it was in flight.
    pub(super) fn end(&mut self, key: &str) -> Option<Duration> {
        let place = self.items.iter().position(|item| item.key == key)?;
        Some(self.items.remove(place).since)
    }

    pub(super) fn clear(&mut self) {
        self.items.clear();
    }

    /// The oldest and how many more, in what fits on one line: `creating a.b (12s), 3 more`.
    pub(super) fn told(&self, now: Duration) -> Option<String> {
        let oldest = self.items.first()?;
        let told = format!("{} ({})", oldest.what, human(now.saturating_sub(oldest.since)));
        let more = self.items.len() - 1;
        Some(if more == 0 { told } else { format!("{told}, {more} more") })
    }

    pub(super) fn whats(&self) -> impl Iterator<Item = &str> {
        self.items.iter().map(|item| item.what.as_str())
    }
}

/// What a `step.progressed` says is in flight.
pub(super) fn in_flight(items: &[crate::event::InFlight]) -> Option<String> {
    several(&items.iter().map(|item| format!("{} ({})", item.what, span(item.for_ms))).collect::<Vec<_>>())
}

/// The first two, and how many more.
fn several(told: &[String]) -> Option<String> {
    match told {
        [] => None,
        [one] => Some(one.clone()),
        [one, two] => Some(format!("{one}, {two}")),
        [one, two, more @ ..] => Some(format!("{one}, {two} and {} more", more.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::human::Color;

    fn rendered(rows: &[Row]) -> Vec<String> {
        let mut out = String::new();
        for row in rows {
            row.render(100, Color::Off, &mut out);
        }
        out.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_name_that_is_wider_than_its_column_has_a_line_of_its_own_in_a_dry_run() {
        let object = |name: &str| ObjectApplied {
            kind: "ConfigMap".to_owned(),
            namespace: Some("default".to_owned()),
            name: name.to_owned(),
            action: ObjectChange::Created,
            taken_over: Vec::new(),
            dry_run: true,
        };
        let long = "a-name-that-goes-on-and-on-and-does-not-end-where-others-do";
        let mut objects = Objects::default();
        let rows = [objects.apply(&object("short")), objects.apply(&object(long))].concat();
        let lines = rendered(&rows);
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert!(lines[1].ends_with(long), "{lines:#?}");
        assert_eq!(lines[0].find("to create"), lines[2].find("to create"), "{lines:#?}");

        let mut resources = Resources::default();
        resources.plan("a.b", "create");
        resources.plan(&format!("module.far.{long}.it"), "create");
        let lines = rendered(&resources.planned_only(100));
        assert_eq!((lines.len(), lines[0].find("to create")), (3, lines[2].find("to create")), "{lines:#?}");
    }
}
