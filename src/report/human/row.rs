//! One line of the log: styled text that is wrapped, painted and made harmless.
//!
//! Whatever was put into it, a rendered line has no control character but our own colours and its line feed, and no CI
//! system reads a command in it: GitHub obeys `::command::` at the beginning of a line (after spaces, too) and
//! `##[command]` anywhere; Azure and TeamCity obey `##vso[…]` and `##teamcity[…]`.

use crate::event::text::plain;
use crate::report::human::Color;

/// How a piece of text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    /// Less important.
    Dim,
    /// Went well.
    Good,
    /// Worth a look.
    Caution,
    /// Went wrong.
    Bad,
    /// The verdict when all went well.
    Triumph,
    /// The verdict after a stop.
    Alert,
    /// The verdict when something went wrong.
    Alarm,
}

impl Style {
    fn codes(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Good => "32",
            Style::Caution => "33",
            Style::Bad => "31",
            Style::Triumph => "1;32",
            Style::Alert => "1;33",
            Style::Alarm => "1;31",
        }
    }
}

/// A line of the log before it is wrapped.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    indent: usize,
    hang: usize,
    spans: Vec<(Style, String)>,
    wrap: Wrap,
}

/// Whether a row may become several lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Wrap {
    #[default]
    Words,
    Never,
}

impl Style {
    /// A row of this text alone.
    pub(super) fn row(self, indent: usize, text: &str) -> Row {
        Row::new().indent(indent).say(self, text)
    }
}

impl Row {
    /// An empty line.
    pub(super) fn new() -> Row {
        Row::default()
    }

    /// Begins at this column, and so do the lines that it is wrapped into.
    #[must_use]
    pub(super) fn indent(mut self, columns: usize) -> Row {
        (self.indent, self.hang) = (columns, columns);
        self
    }

    /// The lines that it is wrapped into begin where the text ends now.
    #[must_use]
    pub(super) fn hang_here(mut self) -> Row {
        self.hang = self.indent + self.columns();
        self
    }

    /// Stays one line, however narrow the log is: for what `tail -n 1` has to find.
    #[must_use]
    pub(super) fn unbroken(mut self) -> Row {
        self.wrap = Wrap::Never;
        self
    }

    /// Adds text. Line feeds in it become spaces; see [`Row::paragraphs`].
    #[must_use]
    pub(super) fn say(mut self, style: Style, text: &str) -> Row {
        self.spans.push((style, plain(text).replace('\n', " ").replace('\t', "    ").replace(is_bidi, "\u{fffd}")));
        self
    }

    /// Adds spaces up to this column, or one if the text is there already.
    #[must_use]
    pub(super) fn pad_to(self, column: usize) -> Row {
        let gap = column.saturating_sub(self.indent + self.columns()).max(1);
        self.say(Style::Plain, &" ".repeat(gap))
    }

    /// Adds text that ends at this column.
    #[must_use]
    pub(super) fn right(self, style: Style, text: &str, column: usize) -> Row {
        self.pad_to(column.saturating_sub(columns(text))).say(style, text)
    }

    /// One row per line of a text.
    pub(super) fn paragraphs(indent: usize, style: Style, text: &str) -> Vec<Row> {
        plain(text).trim_end().lines().map(|line| style.row(indent, line.trim_end())).collect()
    }

    fn columns(&self) -> usize {
        self.spans.iter().map(|(_, text)| columns(text)).sum()
    }

    /// Writes it as lines of at most this many columns, words longer than that excepted: a path or a command is for
    /// copying, and stays in one piece.
    pub(super) fn render(&self, width: usize, color: Color, out: &mut String) {
        let mut brush = Brush { color, style: Style::Plain, out };
        let mut at = 0;
        let mut first = true;
        for word in self.words() {
            // A new line that begins where this word would stand anyway is no gain.
            let fits = at + word.gap + word.columns <= width || at + word.gap <= self.hang || self.wrap == Wrap::Never;
            let fresh = first || !fits;
            if first {
                at = self.indent + word.gap;
                brush.spaces(at);
            } else if fits {
                at += word.gap;
                brush.spaces(word.gap);
            } else {
                brush.end_line();
                at = self.hang;
                brush.spaces(at);
            }
            first = false;
            at += word.columns;
            brush.word(&word, if fresh { Column::First } else { Column::Later });
        }
        brush.end_line();
    }

    /// Writes it as one line that is cut to this many columns and has no line feed.
    pub(super) fn render_live(&self, width: usize, color: Color, out: &mut String) {
        let mut brush = Brush { color, style: Style::Plain, out };
        brush.spaces(self.indent.min(width));
        let mut left = width.saturating_sub(self.indent);
        for (style, text) in &self.spans {
            if columns(text) > left {
                brush.paint(*style, cut(text, left.saturating_sub(1)));
                brush.paint(*style, if left > 0 { "…" } else { "" });
                break;
            }
            left -= columns(text);
            brush.paint(*style, text);
        }
        brush.set(Style::Plain);
    }

    /// The words with the spaces before them. What stands between two backquotes is one word.
    fn words(&self) -> Vec<Word> {
        let mut words: Vec<Word> = Vec::new();
        let mut gap = 0;
        let mut open = false;
        for (style, text) in &self.spans {
            let mut left = text.matches('`').count();
            let mut quoted = false;
            for letter in text.chars() {
                if letter == '`' {
                    left -= 1;
                    quoted = !quoted && left > 0;
                }
                if letter == ' ' && !quoted {
                    gap += 1;
                    open = false;
                    continue;
                }
                if !open {
                    words.push(Word { gap, columns: 0, pieces: Vec::new() });
                    (gap, open) = (0, true);
                }
                words.last_mut().expect("a word is open").push(*style, letter);
            }
        }
        words
    }
}

/// Where on its line a word stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    /// It begins the line, but for spaces.
    First,
    /// Another word is before it.
    Later,
}

struct Word {
    gap: usize,
    columns: usize,
    pieces: Vec<(Style, String)>,
}

impl Word {
    fn push(&mut self, style: Style, letter: char) {
        self.columns += letter_columns(letter);
        match self.pieces.last_mut() {
            Some((same, text)) if *same == style => text.push(letter),
            Some(_) | None => self.pieces.push((style, letter.to_string())),
        }
    }
}

/// Puts text on the line and changes colour only where it has to.
struct Brush<'a> {
    color: Color,
    style: Style,
    out: &'a mut String,
}

impl Brush<'_> {
    fn spaces(&mut self, count: usize) {
        self.out.extend(std::iter::repeat_n(' ', count));
    }

    fn set(&mut self, style: Style) {
        if self.color == Color::On && style != self.style {
            if self.style != Style::Plain {
                self.out.push_str("\u{1b}[0m");
            }
            if style != Style::Plain {
                self.out.push_str("\u{1b}[");
                self.out.push_str(style.codes());
                self.out.push('m');
            }
        }
        self.style = style;
    }

    fn paint(&mut self, style: Style, text: &str) {
        self.set(style);
        self.out.push_str(&without_commands(text));
    }

    fn word(&mut self, word: &Word, column: Column) {
        for (index, (style, text)) in word.pieces.iter().enumerate() {
            match text.strip_prefix("::") {
                Some(rest) if column == Column::First && index == 0 => self.paint(*style, &format!(": :{rest}")),
                Some(_) | None => self.paint(*style, text),
            }
        }
    }

    fn end_line(&mut self) {
        self.set(Style::Plain);
        while self.out.ends_with(' ') {
            self.out.pop();
        }
        self.out.push('\n');
    }
}

/// `##[command]` and `##vso[command]` with a space between the hashes.
pub(in crate::report) fn without_commands(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("##") {
        let name = rest[at + 2..].trim_start_matches(|letter: char| letter.is_ascii_alphanumeric());
        safe.push_str(&rest[..=at]);
        if name.starts_with('[') {
            safe.push(' ');
        }
        rest = &rest[at + 1..];
    }
    safe.push_str(rest);
    safe
}

/// Characters that change the direction of what follows: a text could show itself as another one.
fn is_bidi(letter: char) -> bool {
    matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
}

/// How many columns a text takes on a terminal.
pub(super) fn columns(text: &str) -> usize {
    text.chars().map(letter_columns).sum()
}

/// The beginning of a text that takes at most this many columns.
fn cut(text: &str, most: usize) -> &str {
    let mut used = 0;
    for (at, letter) in text.char_indices() {
        used += letter_columns(letter);
        if used > most {
            return &text[..at];
        }
    }
    text
}

/// Good enough for names and messages: East Asian wide characters and pictures take two columns, marks none.
fn letter_columns(letter: char) -> usize {
    match letter {
        '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{200f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' => 0,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(row: &Row, width: usize, color: Color) -> String {
        let mut out = String::new();
        row.render(width, color, &mut out);
        out
    }

    #[test]
    fn long_lines_hang_where_the_text_began() {
        let row = Row::new().indent(2).say(Style::Bad, "✗ ").hang_here().say(Style::Plain, "one two three four five");
        assert_eq!(rendered(&row, 16, Color::Off), "  ✗ one two\n    three four\n    five\n");
    }

    #[test]
    fn a_word_that_is_too_long_stays_beside_its_label() {
        let row = Row::new().say(Style::Dim, "files").pad_to(8).hang_here().say(Style::Plain, "/a/long/path and more");
        assert_eq!(rendered(&row, 16, Color::Off), "files   /a/long/path\n        and more\n");
    }

    #[test]
    fn commands_and_paths_stay_in_one_piece() {
        let row = Style::Plain.row(0, "run `dcctl lock status --watch` now; see /a/very/long/path/that/does/not/fit");
        let lines = "run\n`dcctl lock status --watch`\nnow; see\n/a/very/long/path/that/does/not/fit\n";
        assert_eq!(rendered(&row, 28, Color::Off), lines);
        assert_eq!(rendered(&Style::Plain.row(0, "a `b c d"), 4, Color::Off), "a `b\nc d\n");
    }

    #[test]
    fn colour_is_put_on_and_taken_off_within_the_line() {
        let row = Row::new().indent(1).say(Style::Good, "ok ").say(Style::Plain, "then ").say(Style::Dim, "a b");
        let line = " \u{1b}[32mok \u{1b}[0mthen\n \u{1b}[2ma b\u{1b}[0m\n";
        assert_eq!(rendered(&row, 8, Color::On), line);
    }

    #[test]
    fn nothing_that_a_tool_prints_is_a_command() {
        for (text, safe) in [
            ("::error::x", ": :error::x\n"),
            ("  ::error::x", "  : :error::x\n"),
            ("word ::add-mask::x", "word\n: :add-mask::x\n"),
            ("a##[error]b", "a# #[error]b\n"),
            ("###[x] ##vso[y] ##teamcity[z]", "## #[x] # #vso[y]\n# #teamcity[z]\n"),
            ("## heading", "## heading\n"),
        ] {
            assert_eq!(rendered(&Style::Plain.row(0, text), 15, Color::Off), safe);
        }
    }

    #[test]
    fn nothing_that_a_tool_prints_draws_on_the_terminal() {
        let row = Style::Plain.row(0, "a\u{1b}[2Jb\u{7}\u{202e}c\td");
        assert_eq!(rendered(&row, 80, Color::Off), "ab\u{fffd}\u{fffd}c    d\n");
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(rendered(&Style::Plain.row(0, "集群 锁 ok"), 7, Color::Off), "集群 锁\nok\n");
        let mut out = String::new();
        Style::Plain.row(1, "集群锁").render_live(6, Color::Off, &mut out);
        assert_eq!(out, " 集群…");
    }

    #[test]
    fn columns_are_padded_and_aligned_to_the_right() {
        let row = Row::new().indent(2).say(Style::Plain, "name").pad_to(10).say(Style::Plain, "created");
        assert_eq!(rendered(&row.right(Style::Dim, "4s", 22), 80, Color::Off), "  name    created   4s\n");
    }
}
