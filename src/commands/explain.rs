//! `dcctl explain CODE`: what an exit code or a failure code means and who acts.

use std::collections::BTreeSet;

use crate::cli::ExplainArgs;
use crate::commands::{complain, print};
use crate::config::nearest;
use crate::failure::{Code, Failure, Row, TABLE};

/// Prints the rows that the code stands for.
pub(crate) fn explain(args: &ExplainArgs) -> u8 {
    let rows: Vec<&Row> =
        TABLE.iter().filter(|row| row.name == args.code || row.exit.to_string() == args.code).collect();
    if args.code == "0" {
        return print("exit code 0: done, or nothing to do.\n");
    }
    if rows.is_empty() {
        let sentence = format!("`{}` is neither an exit code nor a failure code of dcctl", args.code);
        let failure = Failure::new(Code::UsageInvalid, sentence).hint(meant(&args.code));
        complain(&failure);
        return failure.code.exit();
    }
    print(&rows.into_iter().map(paragraph).collect::<Vec<_>>().join("\n"))
}

fn paragraph(row: &Row) -> String {
    let Row { name, exit, meaning, who, remedy, .. } = row;
    format!("{name} (exit code {exit})\n  {meaning}\n  Who acts: {who}.\n  {remedy}\n")
}

/// The code that was probably meant, else where all of them are; there are too many to list.
fn meant(typed: &str) -> String {
    let codes = TABLE.iter().map(|row| row.name);
    if let Some(near) = nearest(typed, codes.clone()) {
        return format!("did you mean `{near}`?");
    }
    let areas: BTreeSet<&str> = codes.filter_map(|name| name.split('.').next()).collect();
    let areas = Vec::from_iter(areas).join(", ");
    format!("exit codes are numbers, such as 20; failure codes, such as lock.held, begin with {areas}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_code_is_answered_by_the_one_that_was_meant() {
        assert_eq!(meant("lok.held"), "did you mean `lock.held`?");
        assert!(meant("sunshine").contains("begin with build, "), "{}", meant("sunshine"));
    }
}
