//! The run as one page for a browser, which stands alone: it is attached to an incident review, opened from an artifact,
//! and read years later without anything from elsewhere.
//!
//! # What it promises
//! The verdict comes first, and the page says no more than the journal. Verdict, timeline, resources and diagnostics are
//! plain HTML and need no script; the log with its search does, and has every event. Nothing that a stranger wrote is
//! markup or script: every text passes [`escaped`] or, in the data of the log, [`rows`], and the policy of the page allows
//! the one script and the one style sheet that are in it, by their hashes, and no address at all.
//!
//! # How to read it
//! [`verdict`], [`timeline`] and [`lists`] write one part each, [`rows`] the data of the log; `page.html` is the page around
//! them, `page.css` and `page.js` its looks and its log. `policy.txt` is made from the latter two by `make docs`.

mod lists;
mod rows;
mod timeline;
mod verdict;

use std::borrow::Cow;

use crate::event::Seen;
use crate::report::account::{Account, Verdict};
use crate::report::html::rows::Rows;
use crate::report::recorded::{Ending, Reporter};
use crate::report::visible::visible;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const POLICY: &str = include_str!("policy.txt");

/// A page in the making.
#[derive(Debug, Default)]
pub struct Page {
    account: Account,
    rows: Rows,
}

impl Reporter for Page {
    fn take(&mut self, seen: &Seen, line: &str) {
        self.account.take(seen);
        self.rows.take(seen, line);
    }

    fn end(self: Box<Self>, ending: &Ending) -> String {
        let Page { account, rows } = *self;
        let verdict = Verdict::of(&account);
        let title = format!("{} · dcctl", verdict.heading);
        let parts = [
            ("policy", POLICY.trim_end().to_owned()),
            ("title", escaped(&title).into_owned()),
            ("style", STYLE.to_owned()),
            ("mood", verdict::mood(&verdict).to_owned()),
            ("verdict", verdict::verdict(&account, &verdict, ending)),
            ("facts", verdict::facts(&account, ending)),
            ("timeline", timeline::timeline(&account)),
            ("resources", lists::resources(&account)),
            ("diagnostics", lists::diagnostics(&account)),
            ("steps", lists::step_options(&account)),
            ("data", rows.data(&account)),
            ("script", SCRIPT.to_owned()),
        ];
        filled(PAGE, &parts)
    }
}

/// The page with each `{{name}}` replaced by its part. Parts are not looked into.
fn filled(page: &str, parts: &[(&str, String)]) -> String {
    let length = parts.iter().map(|(_, part)| part.len()).sum::<usize>() + page.len();
    let mut text = String::with_capacity(length);
    let mut pieces = page.split("{{");
    text.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").expect("the page is ours");
        let (_, part) = parts.iter().find(|(known, _)| *known == name).expect("the page is ours");
        text.push_str(part);
        text.push_str(rest);
    }
    text
}

/// Text of a stranger, for the content of an element or for an attribute in quotes. Two colons or hashes in a row are
/// broken up, too: a CI system in whose log a page is printed may take them for a command.
fn escaped(text: &str) -> Cow<'_, str> {
    let text = visible(text);
    if !text.contains(['&', '<', '>', '"', '\'']) && !text.contains("::") && !text.contains("##") {
        return text;
    }
    let mut safe = String::with_capacity(text.len() + 16);
    let mut before = ' ';
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            ':' if before == ':' => safe.push_str("&#58;"),
            '#' if before == '#' => safe.push_str("&#35;"),
            other => safe.push(other),
        }
        before = letter;
    }
    Cow::Owned(safe)
}

/// A sentence in which what stands between backticks is to be typed.
fn spoken(said: &str) -> String {
    if said.matches('`').count() % 2 == 1 {
        return escaped(said).into_owned();
    }
    let parts = said.split('`').enumerate().map(|(index, part)| match index % 2 {
        1 => format!("<code>{}</code>", escaped(part)),
        _ => escaped(part).into_owned(),
    });
    parts.collect()
}

#[cfg(test)]
mod tests;
