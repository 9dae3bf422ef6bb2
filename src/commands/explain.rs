//! `dcctl explain CODE`: what an exit code or a failure code means and who acts.

use crate::cli::ExplainArgs;
use crate::commands::{complain, print};
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
        let failure = Failure::new(Code::UsageInvalid, sentence).hint(format!("known codes: {}", known()));
        complain(&failure);
        return failure.code.exit();
    }
    print(&rows.into_iter().map(paragraph).collect::<Vec<_>>().join("\n"))
}

fn paragraph(row: &Row) -> String {
    let Row { name, exit, meaning, who, remedy, .. } = row;
    format!("{name} (exit code {exit})\n  {meaning}\n  Who acts: {who}.\n  {remedy}\n")
}

fn known() -> String {
    TABLE.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
}
