//! The run as Markdown, for the summary page of a CI job.
//!
//! # What it promises
//! The verdict comes first: how it ended, why, what to do, where the lock is. Nothing that a stranger wrote is Markdown: it
//! makes no link, mentions nobody and ends no table. GitHub takes 1 MiB of one step and shows nothing of more, so the text
//! stays under [`LARGEST`], and says what it left out. What it uses of Markdown GitHub and GitLab both know.

use std::fmt::Write as _;
use std::time::Duration;

use crate::event::text::{beginning, one_line};
use crate::event::{Seen, Severity, StepOutcome};
use crate::report::account::words::took;
use crate::report::account::{Account, Mood, Said, Step, Thing, Verdict};
use crate::report::human::row::without_commands;
use crate::report::recorded::{Ending, Reporter};
use crate::report::visible::visible;

/// The most bytes of a summary: under GitHub's limit, with room for what other commands of the step write.
pub(crate) const LARGEST: usize = 900 * 1024;

/// The most bytes of one text in a line or a cell.
const LONGEST_TEXT: usize = 2_000;
/// The most bytes of the detail of a diagnostic.
const LONGEST_DETAIL: usize = 8 * 1024;
/// How many resources are shown beside the list that unfolds.
const SHOWN: usize = 10;

/// A summary in the making.
#[derive(Debug, Default)]
pub struct Summary {
    account: Account,
}

impl Reporter for Summary {
    fn take(&mut self, seen: &Seen, _: &str) {
        self.account.take(seen);
    }

    fn end(self: Box<Self>, ending: &Ending) -> String {
        let mut page = Page { text: String::new() };
        page.verdict(&self.account);
        page.steps(&self.account);
        page.resources(&self.account);
        page.diagnostics(&self.account);
        page.whereabouts(&self.account, ending);
        page.text
    }
}

struct Page {
    text: String,
}

impl Page {
    fn say(&mut self, text: impl AsRef<str>) {
        self.text.push_str(text.as_ref());
        self.text.push('\n');
    }

    /// Says what there is room for, one piece after the other, and then how many of them there was no room for. The pieces
    /// that come later in the page keep some room of their own.
    fn fill(&mut self, most: usize, what: &str, pieces: impl Iterator<Item = String>) {
        let most = (self.text.len() + most).min(LARGEST - 8 * 1024);
        let mut left_out = 0_u64;
        for piece in pieces {
            if left_out > 0 || self.text.len() + piece.len() > most {
                left_out += 1;
            } else {
                self.say(piece);
            }
        }
        if left_out > 0 {
            self.say(format!("\n*{left_out} more {what} are left out here; the events have them all.*"));
        }
    }

    fn verdict(&mut self, account: &Account) {
        let verdict = Verdict::of(account);
        let mark = match verdict.mood {
            Mood::Good => "✅",
            Mood::Calm => "⏹️",
            Mood::Bad => "❌",
            Mood::Unknown => "❔",
        };
        self.say(format!("## {mark} {}\n", text(&verdict.heading)));
        let mut facts = Vec::new();
        facts.extend(verdict.exit_code.map(|code| format!("**exit code {code}**")));
        facts.extend(verdict.code.as_ref().map(|code| format!("<code>{}</code>", text(code))));
        facts.push(spoken(&verdict.lock));
        facts.push(took(verdict.took));
        self.say(facts.join(" · "));
        if let Some(why) = &verdict.why {
            self.say(format!("\n**Why:** {}", spoken(why)));
            if !verdict.causes.is_empty() {
                self.say("");
            }
            self.fill(64 * 1024, "causes", verdict.causes.iter().map(|cause| format!("- {}", spoken(cause))));
        }
        if !verdict.to_do.is_empty() {
            self.say("\n**What to do now**\n");
            let lines = verdict.to_do.iter().zip(1..).map(|(line, number)| format!("{number}. {}", spoken(line)));
            self.fill(32 * 1024, "things to do", lines);
        }
        for (name, lines) in &verdict.lists {
            self.say(format!("\n**{name}**\n"));
            self.fill(32 * 1024, "of them", lines.iter().map(|line| format!("- {}", code(line))));
        }
    }

    fn steps(&mut self, account: &Account) {
        if account.steps.is_empty() {
            return;
        }
        self.say("\n### Steps\n\n| | step | what came of it | time |\n|---|---|---|---:|");
        let is_over = account.verdict.is_some();
        self.fill(64 * 1024, "steps", account.steps.iter().map(|step| step_row(step, is_over)));
    }

    fn resources(&mut self, account: &Account) {
        let things = account.things();
        if things.is_empty() {
            return;
        }
        let counted = account.verdict.as_ref().map(|verdict| verdict.counts.resources);
        let counted = counted.map(|counts| {
            let counts = [
                (counts.created, "created"),
                (counts.changed, "changed"),
                (counts.destroyed, "destroyed"),
                (counts.failed, "failed"),
            ];
            let said = counts.iter().filter(|(number, _)| *number > 0).map(|(number, word)| format!("{number} {word}"));
            said.collect::<Vec<_>>().join(", ")
        });
        let counted = counted.filter(|said| !said.is_empty()).map(|said| format!(": {said}")).unwrap_or_default();
        self.say(format!("\n### Resources{counted}\n"));
        let folds = things.len() > SHOWN;
        if folds {
            self.say(format!("<details><summary>{} resources, objects and checks</summary>\n", things.len()));
        }
        self.say("| resource | action | came to | time |\n|---|---|---|---:|");
        self.fill(384 * 1024, "resources", things.iter().map(|(_, thing)| thing_row(thing)));
        if folds {
            self.say("\n</details>");
        }
    }

    fn diagnostics(&mut self, account: &Account) {
        let is_error = |said: &&Said| said.diagnostic.severity == Severity::Error;
        let (errors, warnings): (Vec<_>, Vec<_>) = account.diagnostics.iter().partition(is_error);
        if errors.is_empty() && warnings.is_empty() {
            return;
        }
        self.say("\n### Diagnostics\n");
        self.fill(256 * 1024, "diagnostics", errors.into_iter().chain(warnings).map(diagnostic));
    }

    fn whereabouts(&mut self, account: &Account, ending: &Ending) {
        self.say("\n---\n");
        for remark in ending.remarks() {
            self.say(format!("Of the journal: {}.  ", spoken(&remark)));
        }
        let mut facts = vec![format!("run {}", code(&ending.run))];
        if let Some(started) = &account.started {
            facts.extend(started.kube_context.as_ref().map(|context| format!("cluster {}", code(context))));
            let bundle = started.bundle.as_ref();
            facts.extend(
                bundle.map(|bundle| format!("bundle {}", code(&format!("{} {}", bundle.name, bundle.version)))),
            );
            facts.extend(started.run_dir.as_ref().map(|folder| format!("files in {}", code(folder))));
            facts.push(format!("dcctl {}", text(&started.dcctl)));
        }
        self.say(facts.join(" · "));
    }
}

fn step_row(step: &Step, is_over: bool) -> String {
    let (mark, said, time) = match &step.ended {
        Some((_, ended)) => {
            let (mark, word) = match ended.outcome {
                StepOutcome::Done => ("✓", "done"),
                StepOutcome::Nothing => ("–", "nothing to do"),
                StepOutcome::Stopped => ("■", "stopped"),
                StepOutcome::Failed => ("✗", "failed"),
            };
            let why = ended.failure.as_ref().map_or(&ended.note, |failure| &failure.message);
            let said = if why.is_empty() { word.to_owned() } else { format!("{word}: {}", spoken(why)) };
            let time = if ended.outcome == StepOutcome::Nothing {
                String::new()
            } else {
                took(Duration::from_millis(ended.duration_ms))
            };
            (mark, said, time)
        }
        None if step.begun.is_some() => ("?", "begun, its end was not seen".to_owned(), String::new()),
        None if is_over => ("", "not begun".to_owned(), String::new()),
        None => ("", "not seen to begin".to_owned(), String::new()),
    };
    format!("| {mark} | {} | {said} | {time} |", text(&step.title))
}

fn thing_row(thing: &Thing) -> String {
    let time = thing.took.map(took).unwrap_or_default();
    format!("| {} | {} | {} | {time} |", code(&thing.name), text(&thing.action), text(&thing.state.said()))
}

fn diagnostic(said: &Said) -> String {
    let diagnostic = &said.diagnostic;
    let word = match diagnostic.severity {
        Severity::Error => "Error",
        Severity::Warning => "Warning",
    };
    let mut told = format!("**{word}** from {}: {}", text(&diagnostic.origin), text(&diagnostic.summary));
    for about in [&diagnostic.address, &diagnostic.source].into_iter().flatten() {
        write!(told, "  \n{}", code(about)).expect("a String takes everything");
    }
    told.push('\n');
    if !diagnostic.detail.is_empty() {
        told.push_str(&block(&diagnostic.detail));
    }
    told
}

/// Text of a stranger as it stands, on one line, whatever Markdown makes of its characters.
fn text(said: &str) -> String {
    let line = visible(said);
    let line = one_line(&line);
    let mut escaped = String::with_capacity(line.len() + 16);
    let cut = beginning(line.trim(), LONGEST_TEXT);
    let mut letters = cut.chars().peekable();
    while let Some(letter) = letters.next() {
        // `:word:` would be a picture.
        let is_active = match letter {
            ':' => letters.peek().is_some_and(|next| next.is_alphanumeric() || "+-:".contains(*next)),
            other => "&<>`*_[]~#|\\!@$".contains(other),
        };
        if is_active {
            write!(escaped, "&#{};", u32::from(letter)).expect("a String takes everything");
        } else {
            escaped.push(letter);
        }
    }
    if cut.len() < line.trim().len() {
        escaped.push('…');
    }
    escaped
}

/// A name, in the letters of a terminal.
fn code(said: &str) -> String {
    format!("<code>{}</code>", text(said))
}

/// A sentence of ours or about strangers, in which what stands between backticks is to be typed.
fn spoken(said: &str) -> String {
    if said.matches('`').count() % 2 == 1 {
        return text(said);
    }
    let parts = said.split('`').enumerate();
    // The spaces around a part belong to the sentence.
    let parts = parts.map(|(index, part)| {
        let (before, after) = (part.len() - part.trim_start().len(), part.len() - part.trim_end().len());
        let (before, after) = (if before > 0 { " " } else { "" }, if after > 0 { " " } else { "" });
        if part.trim().is_empty() {
            return before.to_owned();
        }
        if index % 2 == 1 { code(part) } else { format!("{before}{}{after}", text(part)) }
    });
    parts.collect()
}

/// Several lines as they stand: the fence is longer than any in them. Whoever prints a summary in a job has no line of a
/// tool in it that the CI system would obey.
fn block(said: &str) -> String {
    let lines = visible(said);
    let cut = beginning(lines.trim_end(), LONGEST_DETAIL);
    let longest = cut.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let more = if cut.len() < lines.trim_end().len() { "\n[the rest is left out here]" } else { "" };
    let harmless = cut.lines().map(|line| match line.trim_start().strip_prefix("::") {
        Some(rest) => format!(": :{rest}\n"),
        None => format!("{line}\n"),
    });
    let harmless = without_commands(&harmless.collect::<String>());
    format!("\n{fence}text\n{}{more}\n{fence}\n", harmless.trim_end())
}

#[cfg(test)]
mod tests;
